package site

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/sim"
)

// Leg says whose control daemons a site runs. A test and a table name theirs.
type Leg string

const (
	// Real is NVIDIA's own control daemon: starting, limits, read-back, hanging.
	// Without a GPU it gets no server up, so no job attaches.
	Real Leg = "real"
	// Sim is the simulated control daemon with its servers, and the simulated
	// libcuda: jobs attach, allocate and are limited.
	Sim Leg = "sim"
)

// Where NVIDIA's packages put their programs (Debian's: the server is in sbin).
const (
	controlProgram = "/usr/bin/nvidia-cuda-mps-control"
	serverProgram  = "/usr/sbin/nvidia-cuda-mps-server"
	libraries      = "/usr/lib/x86_64-linux-gnu/"
)

// addLeg puts the control daemon and its server where NVIDIA's packages put
// them, and in the leg Sim the clients' side as well. It returns their driver
// version.
func addLeg(ctx context.Context, opts *node.Options, o Options) (version string, err error) {
	if o.Leg == Sim {
		return addSimulatedMPS(ctx, opts, o)
	}
	if o.NoControlDaemon {
		return "", nil
	}
	dir, err := driver.Fetch(ctx, o.Branch)
	if err != nil {
		return "", err
	}
	addMPS(opts, driver.Control(dir), driver.Server(dir))
	// The server says why it ends only where it finds this library.
	opts.Binds = append(opts.Binds, node.Bind{Host: filepath.Join(driver.Libraries(dir), "libcuda.so.1"), Guest: libraries + "libcuda.so.1"})
	return driver.Version(dir)
}

func addMPS(opts *node.Options, control, server string) {
	opts.Binds = append(opts.Binds,
		node.Bind{Host: control, Guest: controlProgram},
		node.Bind{Host: server, Guest: serverProgram})
}

// addSimulatedMPS lets the units of the control daemons write the simulated
// state, which stands for the driver's; jobs reach it as they reach /dev.
func addSimulatedMPS(ctx context.Context, opts *node.Options, o Options) (version string, err error) {
	if !o.simulated() {
		return "", errors.New("the leg sim needs simulated GPUs: give an Inventory, and do not give it as Recorded")
	}
	dir, err := sim.Build(ctx)
	if err != nil {
		return "", err
	}
	opts.Binds = append(opts.Binds,
		node.Bind{Host: filepath.Join(dir, "lib/libcuda.so.1"), Guest: libraries + "libcuda.so.1"},
		node.Bind{Host: filepath.Join(dir, "bin/simjob"), Guest: "/usr/local/bin/simjob"})
	if o.NoControlDaemon {
		return "", nil
	}
	addMPS(opts, filepath.Join(dir, "bin/nvidia-cuda-mps-control"), filepath.Join(dir, "bin/nvidia-cuda-mps-server"))
	opts.Files["/etc/systemd/system/gpuslot-mps@.service.d/simulated.conf"] = node.File{Data: writableState}
	return o.Inventory.Driver, nil
}
