#!/usr/bin/env python3
"""A small training, as many high-energy-physics analyses have them: a network of
a few layers on data that fit into memory. Fixed work, so that its run time says
how much of the GPU it got. It tells its work in one line of JSON, as gpujob does
a step: when it ended and how long it took, without imports, context and the
first steps, in which libraries are loaded."""
import argparse
import json
import sys
import time

WARM = 20  # steps before the work

parser = argparse.ArgumentParser(description="a small training that says how long it took")
parser.add_argument("--check", action="store_true", help="only say whether it could run")
parser.add_argument("--device", default="cuda", help="cpu where there is no GPU")
parser.add_argument("--steps", type=int, default=1500, help="training steps")
parser.add_argument("--batch", type=int, default=1024, help="events in a batch")
parser.add_argument("--width", type=int, default=256, help="width of the hidden layers")
options = parser.parse_args()
if min(options.steps, options.batch, options.width) < 1:
    parser.error("steps, batch and width are at least 1")

try:
    import torch
except ImportError as e:
    sys.exit(f"train.py: {e}")
if options.device == "cuda" and not torch.cuda.is_available():
    sys.exit("train.py: torch sees no GPU")
if options.check:
    print(torch.__version__, torch.cuda.get_device_name(0) if options.device == "cuda" else options.device)
    sys.exit(0)


def wait():
    if options.device == "cuda":
        torch.cuda.synchronize()


def train():
    torch.manual_seed(1)
    torch.set_num_threads(2)  # the paper gives each copy two CPU threads
    features = torch.randn(64 * options.batch, 40, device=options.device)
    labels = (features[:, 0] * features[:, 1] > 0).long()
    layers = [torch.nn.Linear(40, options.width), torch.nn.ReLU()]
    for _ in range(4):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(options.width, 2)).to(options.device)
    optimizer = torch.optim.Adam(network.parameters())
    for step in range(-WARM, options.steps):
        if step == 0:
            wait()
            began = time.monotonic()
        at = (step % 64) * options.batch
        batch = slice(at, at + options.batch)
        loss = torch.nn.functional.cross_entropy(network(features[batch]), labels[batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    wait()
    return time.monotonic() - began, loss.item()


try:
    took, loss = train()
except RuntimeError as e:  # out of memory is one, and what CUDA and MPS refuse
    sys.exit(f"train.py: {e}")
print(json.dumps({
    "step": f"train {options.steps}", "code": 0, "result": "trained", "ms": round(took * 1000, 3), "at": round(time.time(), 3),
    "steps_per_second": round(options.steps / took, 1), "loss": round(loss, 4), "torch": torch.__version__,
}))
