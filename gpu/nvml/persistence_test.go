//go:build cgo

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// persistentLibrary has one GPU, or its handle's error.
type persistentLibrary struct {
	nvml.Interface
	device persistentDevice
	handle nvml.Return
	absent bool
}

func (l persistentLibrary) Extensions() nvml.ExtendedInterface { return l }
func (l persistentLibrary) LookupSymbol(string) error {
	if l.absent {
		return errors.New("no such symbol")
	}
	return nil
}
func (l persistentLibrary) DeviceGetHandleByUUID(string) (nvml.Device, nvml.Return) {
	return l.device, l.handle
}

type persistentDevice struct {
	nvml.Device
	mode nvml.EnableState
	ret  nvml.Return
}

func (d persistentDevice) GetPersistenceMode() (nvml.EnableState, nvml.Return) { return d.mode, d.ret }

// TestPersistence: what is not supported is no error, what is lost is one.
func TestPersistence(t *testing.T) {
	for name, c := range map[string]struct {
		lib  persistentLibrary
		want gpu.Measured[bool]
		err  bool
	}{
		"on":            {lib: persistentLibrary{device: persistentDevice{mode: nvml.FEATURE_ENABLED}}, want: gpu.Known(true)},
		"off":           {lib: persistentLibrary{device: persistentDevice{mode: nvml.FEATURE_DISABLED}}, want: gpu.Known(false)},
		"not supported": {lib: persistentLibrary{device: persistentDevice{ret: nvml.ERROR_NOT_SUPPORTED}}},
		"no symbol":     {lib: persistentLibrary{absent: true}},
		"lost":          {lib: persistentLibrary{device: persistentDevice{ret: nvml.ERROR_GPU_IS_LOST}}, err: true},
		"no such GPU":   {lib: persistentLibrary{handle: nvml.ERROR_NOT_FOUND}, err: true},
	} {
		l := &Library{lib: c.lib, worker: newWorker()}
		got, err := l.Persistence(t.Context(), "GPU-0000000a-0000-4000-8000-000000000000")
		l.worker.stop()
		if got != c.want || (err != nil) != c.err {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
