//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// Library is the loaded NVML. A process has one: opening it twice gives two
// handles on the same library.
type Library struct {
	lib    nvml.Interface
	worker *worker
	has    symbols
	names  fullNames
}

// Longest waits. Without persistence mode the driver initialises every GPU
// again, which takes seconds each.
const (
	openLimit = 60 * time.Second
	readLimit = 60 * time.Second
	setLimit  = 30 * time.Second
)

// Open loads and initialises NVML. It may be called again after an error; a
// driver that is loaded a minute after boot is found then.
func Open() (*Library, error) {
	// With this variable set NVML shows an MPS view of the node, in which most
	// calls are not supported (NVIDIA MPS documentation).
	if err := os.Unsetenv("NVML_MPS_DEVICE_ENUMERATION"); err != nil {
		return nil, fmt.Errorf("clear NVML_MPS_DEVICE_ENUMERATION: %w", err)
	}
	l := &Library{lib: nvml.New(), worker: newWorker()}
	has, err := run(context.Background(), l.worker, openLimit, func() (symbols, error) {
		l.worker.step("nvmlInit")
		// After a failed Init any other call may end the process: a symbol
		// that is not loaded is fatal to the dynamic linker, not an error.
		if ret := l.lib.Init(); ret != nvml.SUCCESS {
			return symbols{}, openError(ret)
		}
		return lookUp(l.lib.Extensions()), nil
	})
	if err != nil {
		l.worker.stop()
		return nil, err
	}
	l.has = has
	return l, nil
}

// Close unloads NVML; the Library cannot be used afterwards.
func (l *Library) Close(ctx context.Context) error {
	defer l.worker.stop()
	_, err := run(ctx, l.worker, setLimit, func() (struct{}, error) {
		l.worker.step("nvmlShutdown")
		if ret := l.lib.Shutdown(); ret != nvml.SUCCESS {
			return struct{}{}, fmt.Errorf("close NVML: %w", callError(ret))
		}
		return struct{}{}, nil
	})
	return err
}

// symbols are the functions that not every supported driver exports. Calling
// one that is missing ends the process, so each is looked up once.
type symbols struct {
	migMode, migDevices, memoryV2, cores, cudaVersion bool
	unusual                                           unusualSymbols
}

func lookUp(lib nvml.ExtendedInterface) symbols {
	has := func(name string) bool { return lib.LookupSymbol(name) == nil }
	c2c := c2cMode
	if !has("nvmlDeviceGetC2cModeInfoV") {
		c2c = nil
	}
	return symbols{
		migMode: has("nvmlDeviceGetMigMode"), // 450
		migDevices: has("nvmlDeviceGetMaxMigDeviceCount") && has("nvmlDeviceGetMigDeviceHandleByIndex") &&
			has("nvmlDeviceGetGpuInstanceId") && has("nvmlDeviceGetAttributes") &&
			has("nvmlDeviceGetGpuInstanceById") && has("nvmlGpuInstanceGetInfo"),
		unusual: unusualSymbols{virtualization: has("nvmlDeviceGetVirtualizationMode"),
			display:      has("nvmlDeviceGetDisplayActive"),
			confidential: has("nvmlSystemGetConfComputeState"), numa: has("nvmlDeviceGetNumaNodeId"), c2c: c2c},
		memoryV2:    has("nvmlDeviceGetMemoryInfo_v2"),     // 525
		cores:       has("nvmlDeviceGetNumGpuCores"),       // 525
		cudaVersion: has("nvmlSystemGetCudaDriverVersion"), // 418 or older
	}
}

// SetComputeMode sets the mode of one GPU; root only, and gone after a reboot.
// It matches ErrNoPermission and ErrNotSupported.
func (l *Library) SetComputeMode(ctx context.Context, u gpu.UUID, mode gpu.ComputeMode) error {
	wanted, ok := computeModes[mode]
	if !ok {
		return fmt.Errorf("set compute mode of %s: %q is no compute mode", u, mode)
	}
	_, err := run(ctx, l.worker, setLimit, func() (struct{}, error) {
		l.worker.step("nvmlDeviceGetHandleByUUID of " + u.String())
		d, ret := l.lib.DeviceGetHandleByUUID(u.String())
		if ret == nvml.SUCCESS {
			l.worker.step("nvmlDeviceSetComputeMode of " + u.String())
			ret = d.SetComputeMode(wanted)
		}
		if ret != nvml.SUCCESS {
			return struct{}{}, callError(ret)
		}
		return struct{}{}, nil
	})
	if errors.Is(err, ErrNoPermission) {
		return fmt.Errorf("set compute mode of %s to %s: %w; it needs root", u, mode, err)
	}
	if err != nil {
		return fmt.Errorf("set compute mode of %s to %s: %w", u, mode, err)
	}
	return nil
}

var computeModes = map[gpu.ComputeMode]nvml.ComputeMode{
	gpu.ComputeModeDefault:          nvml.COMPUTEMODE_DEFAULT,
	gpu.ComputeModeExclusiveProcess: nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
	gpu.ComputeModeProhibited:       nvml.COMPUTEMODE_PROHIBITED,
}
