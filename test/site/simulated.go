package site

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/sim"
)

// Where the simulated node keeps its state, inside: libnvidia-ml's default.
const simState = "/run/gpuslot-sim"

// writableState is a drop-in of a unit whose sandbox would hide the state. The unit's process looks for dead
// processes once in 20 ms, not at each call.
const writableState = "[Service]\nReadWritePaths=" + simState + "\nEnvironment=GPUSLOT_SIM_LOOK_MS=20\n"

func (o Options) simulated() bool { return !o.Recorded && o.Inventory != nil }

// addSimulation puts the simulated libnvidia-ml where the loader finds NVIDIA's,
// and lets the agent's sandbox write its state, which stands for the driver's.
func addSimulation(ctx context.Context, opts *node.Options) error {
	dir, err := sim.Build(ctx)
	if err != nil {
		return err
	}
	opts.Binds = append(opts.Binds,
		node.Bind{Host: filepath.Join(dir, "lib/libnvidia-ml.so.1"), Guest: libraries + "libnvidia-ml.so.1"},
		node.Bind{Host: filepath.Join(dir, "bin/simgpu"), Guest: "/usr/local/bin/simgpu"})
	opts.Files["/etc/systemd/system/gpuslotd.service.d/simulated.conf"] = node.File{Data: writableState}
	return nil
}

// Simulate makes the node's GPUs, and lets its CPUs and memory look as the
// inventory says. A reboot takes all of it.
func (s *Site) Simulate(ctx context.Context, inv gpu.Inventory) error {
	// What the driver says of each GPU in /proc, where no other does: its device node is /dev/nvidiaN.
	var listed strings.Builder
	for i, g := range inv.GPUs {
		fmt.Fprintf(&listed, "mkdir -p nvidia/gpus/%s; printf 'GPU UUID: \t %%s\nDevice Minor: \t %%d\n' %s %d >nvidia/gpus/%s/information; ",
			g.PCI, g.UUID, i, g.PCI)
	}
	_, err := s.Run(ctx, "sh", "-ec", strings.Join([]string{
		"[ ! -d /proc/driver ] || [ -e /proc/driver/nvidia ] || { mkdir -p " + simState + "/driver; cd " + simState + "/driver; " +
			listed.String() + "mount --bind . /proc/driver; }",
		"mkdir -p " + simState,
		"simgpu make " + InventoryFile,
		fmt.Sprintf("echo 0-%d >%s/online\nmount --bind %s/online /sys/devices/system/cpu/online",
			inv.Host.CPUs-1, simState, simState),
		fmt.Sprintf("sed 's/^MemTotal:.*/MemTotal: %d kB/' /proc/meminfo >%s/meminfo\nmount --bind %s/meminfo /proc/meminfo",
			inv.Host.Memory.Bytes()/1024, simState, simState),
	}, "\n"))
	return err
}
