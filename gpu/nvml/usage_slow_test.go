//go:build cgo

package nvml

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// slowLibrary has two GPUs. A call on the first waits as long as slow says.
type slowLibrary struct {
	nvml.Interface
	devices [2]nvml.Device
	slow    *time.Duration
	calls   *int
}

func (l slowLibrary) DeviceGetCount() (int, nvml.Return) { return 2, nvml.SUCCESS }
func (l slowLibrary) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if i == 0 {
		*l.calls++
		time.Sleep(*l.slow)
	}
	return l.devices[i], nvml.SUCCESS
}

// TestASlowGPUIsReadByItself: a GPU whose calls take longer than a round keeps
// no other from being read, is asked once at a time, and what it answers at last
// is its reading.
func TestASlowGPUIsReadByItself(t *testing.T) {
	const uuidB = gpu.UUID("GPU-00000000-0000-4000-8000-00000000000b")
	synctest.Test(t, func(t *testing.T) {
		slow, calls := 3500*time.Millisecond, 0
		lib := slowLibrary{slow: &slow, calls: &calls}
		for i, u := range []gpu.UUID{uuidA, uuidB} {
			lib.devices[i] = busyDevice{fakeDevice: v100s(string(u), 0x1a), compute: []nvml.ProcessInfo{process(7, 1)}}
		}
		u := (&Library{lib: lib}).Usage()
		u.has = &usageSymbols{processes: true}
		round := func() []gpu.Reading {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := u.Read(ctx)
			if err != nil || len(got) != 2 {
				t.Fatalf("%+v, %v", got, err)
			}
			if got[1].Err != nil || got[1].GPU != uuidB || !got[1].Processes.Known {
				t.Errorf("the GPU beside a slow one is not read: %+v", got[1])
			}
			return got
		}
		for range 3 {
			got := round()[0]
			if !errors.Is(got.Err, context.DeadlineExceeded) || !strings.HasPrefix(got.Err.Error(), "nvmlDeviceGetHandleByIndex") {
				t.Errorf("a GPU that has not answered: %+v", got)
			}
		}
		if got := round()[0]; got.Err != nil || got.GPU != uuidA || !got.Processes.Known || calls != 1 {
			t.Errorf("its late answer is lost after %d calls: %+v", calls, got)
		}
		slow = time.Hour
		if got := round()[0]; got.Err == nil || got.GPU != uuidA {
			t.Errorf("a GPU that was read before is named while it hangs: %+v", got)
		}
		time.Sleep(slow)
		if err := u.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
