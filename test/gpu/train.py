#!/usr/bin/env python3
"""A small training, as many high-energy-physics analyses have them: a network of
a few layers on data that fit into memory. Fixed work, so that its run time says
how much of the GPU it got. --check only says whether it could run."""
import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--check", action="store_true", help="only say whether torch has a GPU")
parser.add_argument("--steps", type=int, default=1500, help="training steps")
parser.add_argument("--batch", type=int, default=1024, help="events in a batch")
parser.add_argument("--width", type=int, default=256, help="width of the hidden layers")
options = parser.parse_args()

try:
    import torch
except ImportError as e:
    sys.exit(f"train.py: {e}")
if not torch.cuda.is_available():
    sys.exit("train.py: torch sees no GPU")
if options.check:
    print(torch.__version__, torch.cuda.get_device_name(0))
    sys.exit(0)

torch.manual_seed(1)
torch.set_num_threads(2)  # the paper gives each copy two CPU threads
device = torch.device("cuda")
features = torch.randn(64 * options.batch, 40, device=device)
labels = (features[:, 0] * features[:, 1] > 0).long()
layers = [torch.nn.Linear(40, options.width), torch.nn.ReLU()]
for _ in range(4):
    layers += [torch.nn.Linear(options.width, options.width), torch.nn.ReLU()]
network = torch.nn.Sequential(*layers, torch.nn.Linear(options.width, 2)).to(device)
optimizer = torch.optim.Adam(network.parameters())
began = time.monotonic()
for step in range(options.steps):
    at = (step % 64) * options.batch
    loss = torch.nn.functional.cross_entropy(network(features[at:at + options.batch]), labels[at:at + options.batch])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
took = time.monotonic() - began
print(f'{{"steps": {options.steps}, "seconds": {took:.3f}, "steps_per_second": {options.steps / took:.1f}, "loss": {loss.item():.4f}}}')
