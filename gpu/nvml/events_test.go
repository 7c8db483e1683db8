//go:build cgo

package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gpuslot/gpuslot/gpu"
)

// inMode is a GPU's handle that answers for its MIG mode alone.
type inMode struct {
	nvml.Device
	mig int
	ret nvml.Return
}

func (d *inMode) GetMigMode() (int, int, nvml.Return) { return d.mig, d.mig, d.ret }

// TestEventOfWhichGPU: with NVIDIA's mock library an Xid 48 of one GPU was taken for one
// of GPU instance 0 of another, whose listener had got it.
func TestEventOfWhichGPU(t *testing.T) {
	whole, divided := &inMode{mig: nvml.DEVICE_MIG_DISABLE}, &inMode{mig: nvml.DEVICE_MIG_ENABLE}
	lost, foreign := &inMode{ret: nvml.ERROR_GPU_IS_LOST}, &inMode{mig: nvml.DEVICE_MIG_ENABLE}
	e := &ears{instances: true, calls: map[string]int{}, names: map[nvml.Device]gpu.UUID{whole: uuidA, divided: uuidB, lost: uuidA}}
	const none = 0xFFFFFFFF
	for name, c := range map[string]struct {
		device nvml.Device
		gi, ci uint32
		of     gpu.UUID
		gpuI   int
	}{
		"another GPU, ids without MIG": {whole, 0, 0, uuidA, gpu.NoInstance},
		"a GPU in MIG mode":            {divided, 3, 0, uuidB, 3},
		"a GPU in MIG mode, no ids":    {divided, none, none, uuidB, gpu.NoInstance},
		"a lost GPU":                   {lost, 0, 0, uuidA, gpu.NoInstance},
		"a handle that is not known":   {foreign, 2, 0, uuidB, 2},
		"no handle":                    {nil, 2, 0, uuidB, 2},
	} {
		ev := e.event(uuidB, nvml.EventData{Device: c.device, EventType: nvml.EventTypeXidCriticalError, EventData: 48, GpuInstanceId: c.gi, ComputeInstanceId: c.ci})
		if ev.GPU != c.of || ev.GPUInstance != c.gpuI || ev.XID != 48 {
			t.Errorf("%s: %+v, want %s, instance %d", name, ev, c.of, c.gpuI)
		}
	}
}

// Handles are looked for only where a GPU is not heard; the mock panics on other calls.
func TestLookForWhatIsNotHeard(t *testing.T) {
	asked := 0
	e := &ears{calls: map[string]int{}, lib: &mock.Interface{
		DeviceGetCountFunc:         func() (int, nvml.Return) { return 2, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(int) (nvml.Device, nvml.Return) { asked++; return nil, nvml.ERROR_GPU_IS_LOST },
	}}
	if e.look(2); asked != 0 {
		t.Errorf("both GPUs are heard, and %d were asked for", asked)
	}
	for _, heard := range []int{1, 3} {
		asked = 0
		if e.look(heard); asked != 2 {
			t.Errorf("%d of 2 GPUs are heard, and %d were asked for", heard, asked)
		}
	}
}
