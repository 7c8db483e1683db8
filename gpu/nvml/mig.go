//go:build cgo

package nvml

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// migLimit bounds one reading or change: under load MIG queries of real nodes
// took ten seconds, a destroy one (DRA driver's notes).
const migLimit = 120 * time.Second

// MIG reads and changes the MIG mode and instances of this node's GPUs; it is
// the mig.Hardware of a real node. All of it needs root.
type MIG struct {
	l   *Library
	has migSymbols
}

// MIG is the library's part for MIG. A driver without MIG is no error: its GPUs
// are then not capable.
func (l *Library) MIG() MIG { return MIG{l: l, has: lookUpMIG(l.lib.Extensions())} }

// migSymbols are the functions that MIG needs and drivers have or lack.
type migSymbols struct {
	// all that every driver from R460 on has.
	all bool
	// lacking names the first one that is missing.
	lacking string
	// named: profile queries that tell the name (R525).
	named bool
	// mps: the list of MPS clients.
	mps bool
}

// needed are the calls of this file's code without which there is no MIG. Of
// versioned ones go-nvml calls the newest that the library has.
var needed = []string{
	"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo",
	"nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetInfo",
	"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceGetInfo",
	"nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy",
	"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId",
	"nvmlDeviceGetComputeInstanceId", "nvmlDeviceCreateGpuInstanceWithPlacement", // the last one: R460
}

func lookUpMIG(lib nvml.ExtendedInterface) migSymbols {
	has := func(name string) bool { return lib.LookupSymbol(name) == nil }
	for _, name := range needed {
		if !has(name) {
			return migSymbols{lacking: name}
		}
	}
	return migSymbols{all: true, named: has("nvmlDeviceGetGpuInstanceProfileInfoV"),
		mps: has("nvmlDeviceGetMPSComputeRunningProcesses")}
}

// do runs one reading or change of one GPU in the worker.
func (m MIG) do(ctx context.Context, what string, u gpu.UUID, job func(c *migCaller) error) error {
	_, err := run(ctx, m.l.worker, migLimit, func() (struct{}, error) {
		if !m.has.all {
			return struct{}{}, fmt.Errorf("%w: the driver lacks %s, which R460 and newer have", gpu.ErrNoMIG, m.has.lacking)
		}
		c := migCaller{lib: m.l.lib, has: m.has, cores: m.l.has.cores, uuid: u, step: m.l.worker.step}
		d, err := call(&c, "nvmlDeviceGetHandleByUUID",
			func() (nvml.Device, nvml.Return) { return m.l.lib.DeviceGetHandleByUUID(u.String()) })
		if err != nil {
			return struct{}{}, err
		}
		c.device = d
		return struct{}{}, job(&c)
	})
	if err != nil {
		return fmt.Errorf("%s of GPU %s: %w", what, u, err)
	}
	return nil
}

// State reads one GPU: MIG mode, what its chip offers, what exists, who holds it.
func (m MIG) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	if !m.has.all {
		return gpu.MIGState{MIGGPU: gpu.MIGGPU{UUID: u}, Minor: -1}, nil
	}
	var s gpu.MIGState
	err := m.do(ctx, "read MIG", u, func(c *migCaller) (err error) {
		s, err = c.state()
		return err
	})
	return s, err
}

// SetMode sets MIG mode. The call succeeds while the mode does not change
// (N12): both its codes count, and then the mode that is in force.
func (m MIG) SetMode(ctx context.Context, u gpu.UUID, enabled bool) error {
	mode, what := nvml.DEVICE_MIG_DISABLE, "disable MIG mode"
	if enabled {
		mode, what = nvml.DEVICE_MIG_ENABLE, "enable MIG mode"
	}
	return m.do(ctx, what, u, func(c *migCaller) error { return c.setMode(mode) })
}

// Create makes the instance at a place, as mig.Hardware says.
func (m MIG) Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error {
	what := fmt.Sprintf("create an instance of profile %d at %d", p.Profile, p.Start)
	return m.do(ctx, what, u, func(c *migCaller) error { return c.create(p, size) })
}

// Destroy removes the instance at a place, as mig.Hardware says.
func (m MIG) Destroy(ctx context.Context, u gpu.UUID, p gpu.Place) error {
	what := fmt.Sprintf("destroy the instance of profile %d at %d", p.Profile, p.Start)
	return m.do(ctx, what, u, func(c *migCaller) error { return c.destroy(p) })
}

// migCaller makes the calls for one GPU, in the worker.
type migCaller struct {
	lib    nvml.Interface
	device nvml.Device
	has    migSymbols
	cores  bool
	uuid   gpu.UUID
	step   func(string)
}

// call makes one call and names it in its error.
func call[T any](c *migCaller, name string, f func() (T, nvml.Return)) (T, error) {
	c.step(name + " of GPU " + c.uuid.String())
	v, ret := f()
	if ret != nvml.SUCCESS {
		var none T
		return none, fmt.Errorf("%s: %w", name, migError(ret))
	}
	return v, nil
}

// act is call for what returns nothing.
func act(c *migCaller, name string, f func() nvml.Return) error {
	_, err := call(c, name, func() (struct{}, nvml.Return) { return struct{}{}, f() })
	return err
}

// absent tells the answers that mean "this chip or driver has no such one".
func absent(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_FUNCTION_NOT_FOUND
}

// migError is what the executor tells apart.
func migError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_IN_USE:
		return gpu.ErrInUse
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return gpu.ErrNoRoom
	case nvml.ERROR_RESET_REQUIRED:
		return gpu.ErrResetRequired
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w; MIG needs root", ErrNoPermission)
	}
	return callError(ret)
}
