//go:build cgo

package nvml

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// Conditions asks each of the GPUs how it is, in that order. A GPU that is not
// there, or answers GPU_IS_LOST, is Lost; one that fails otherwise has Err. The
// error of the whole is that of a driver that hangs or does not answer at all:
// nothing is known then.
func (l *Library) Conditions(ctx context.Context, of []gpu.UUID) ([]gpu.Condition, error) {
	has := func(name string) bool { return l.lib.Extensions().LookupSymbol(name) == nil }
	got, err := run(ctx, l.worker, readLimit, func() (answers, error) { return readConditions(l.lib, has, l.worker.step) })
	if err != nil {
		return nil, fmt.Errorf("read the condition of the GPUs: %w", err)
	}
	out := make([]gpu.Condition, len(of))
	for i, u := range of {
		out[i] = got.about(u)
	}
	return out, nil
}

// answers is what the GPUs of the node say.
type answers struct {
	known map[gpu.UUID]gpu.Condition
	// silent is the error of a GPU that does not tell which one it is, if it is
	// not that it is lost.
	silent error
}

func (a answers) about(u gpu.UUID) gpu.Condition {
	if c, ok := a.known[u]; ok {
		return c
	}
	if a.silent != nil { // it may be this one
		return gpu.Condition{GPU: u, Err: a.silent}
	}
	return gpu.Condition{GPU: u, Lost: true}
}

// readConditions goes by index: a lookup by UUID may fail for any GPU that is
// lost (nvml.h, nvmlDeviceGetHandleByUUID), and a lost one tells no UUID.
func readConditions(lib nvml.Interface, has func(string) bool, step func(string)) (answers, error) {
	a := answers{known: map[gpu.UUID]gpu.Condition{}}
	step("nvmlDeviceGetCount")
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return a, fmt.Errorf("count GPUs: %w", callError(ret))
	}
	for i := range count {
		u, d, err := identify(lib, i, step)
		switch {
		case err == nil:
			a.known[u] = readCondition(u, d, has, step)
		case !errors.Is(err, lostError{}):
			a.silent = fmt.Errorf("GPU with NVML index %d: %w", i, err)
		}
	}
	return a, nil
}

func identify(lib nvml.Interface, index int, step func(string)) (gpu.UUID, nvml.Device, error) {
	r := deviceReader{index: index, step: step}
	d := ask(&r, "nvmlDeviceGetHandleByIndex",
		func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(index) })
	if r.err != nil {
		return "", nil, r.err
	}
	u := parse(&r, gpu.ParseUUID, ask(&r, "nvmlDeviceGetUUID", d.GetUUID))
	return u, d, r.err
}

// conditionReader asks one GPU; what it does not support stays nil, and after
// the first real error nothing is asked any more.
type conditionReader struct {
	gpu  gpu.UUID
	has  func(string) bool
	step func(string)
	err  error
	// reset: a call answered RESET_REQUIRED, as old drivers say what new ones
	// have a recovery action for.
	reset bool
}

func readCondition(u gpu.UUID, d nvml.Device, has func(string) bool, step func(string)) gpu.Condition {
	r := conditionReader{gpu: u, has: has, step: step}
	c := gpu.Condition{GPU: u}
	c.UncorrectedVolatile = answered(&r, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	c.UncorrectedAggregate = answered(&r, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
	})
	if rows := answered(&r, "nvmlDeviceGetRemappedRows", remappedRows(d)); rows != nil {
		c.RowsPending, c.RowFailed = &rows.pending, &rows.failed
	}
	c.PagesPending = answered(&r, "nvmlDeviceGetRetiredPagesPendingStatus", func() (bool, nvml.Return) {
		s, ret := d.GetRetiredPagesPendingStatus()
		return s == nvml.FEATURE_ENABLED, ret
	})
	c.Recovery = answered(&r, "nvmlDeviceGetFieldValues", recoveryAction(d))
	c.Energy = answered(&r, "nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption)
	switch {
	case errors.Is(r.err, lostError{}):
		return gpu.Condition{GPU: u, Lost: true}
	case r.err != nil:
		return gpu.Condition{GPU: u, Err: r.err}
	case r.reset && (c.Recovery == nil || *c.Recovery == gpu.RecoveryNone):
		action := gpu.RecoveryGPUReset
		c.Recovery = &action
	}
	return c
}

// answered makes one call; nil if the driver or the GPU does not have it.
func answered[T any](r *conditionReader, name string, call func() (T, nvml.Return)) *T {
	if r.err != nil || !r.has(name) {
		return nil
	}
	r.step(name + " of " + r.gpu.String())
	v, ret := call()
	switch ret {
	case nvml.SUCCESS:
		return &v
	case nvml.ERROR_RESET_REQUIRED:
		r.reset = true
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION:
		// A field or a counter that this driver does not know is an invalid argument.
		return nil
	}
	r.err = fmt.Errorf("%s: %w", name, callError(ret))
	return nil
}

type remapped struct{ pending, failed bool }

func remappedRows(d nvml.Device) func() (remapped, nvml.Return) {
	return func() (remapped, nvml.Return) {
		_, _, pending, failed, ret := d.GetRemappedRows()
		return remapped{pending, failed}, ret
	}
}

func recoveryAction(d nvml.Device) func() (gpu.RecoveryAction, nvml.Return) {
	return func() (gpu.RecoveryAction, nvml.Return) {
		v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
		if ret := d.GetFieldValues(v); ret != nvml.SUCCESS {
			return 0, ret
		}
		// The field has its own result, and the action is an unsigned int.
		return gpu.RecoveryAction(binary.NativeEndian.Uint32(v[0].Value[:4])), nvml.Return(v[0].NvmlReturn)
	}
}

func sortedKeys(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }
