//go:build cgo

package nvml

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestOneLookAtATime: a look that hangs is not followed by another, and is named at the end; one that returns is.
func TestOneLookAtATime(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			hang := make(chan struct{})
			looks := 0
			e := &ears{calls: map[string]int{}, lib: &mock.Interface{DeviceGetCountFunc: func() (int, nvml.Return) {
				looks++
				<-hang
				return 0, nvml.SUCCESS
			}}}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.listen(ctx, nil, nil) }()
			time.Sleep(10 * lookAgain)
			if synctest.Wait(); looks != 1 {
				t.Errorf("%d looks while one hangs", looks)
			}
			if !hangs {
				close(hang)
				time.Sleep(3 * lookAgain)
				if synctest.Wait(); looks < 3 {
					t.Errorf("%d looks in the end", looks)
				}
			}
			cancel()
			if err := <-ended; (err != nil) != hangs || hangs && !strings.Contains(err.Error(), "nvmlDeviceGetHandleByIndex") {
				t.Error(err)
			}
			if hangs {
				close(hang)
			}
		})
	}
}

// TestAfter: a lost GPU is told and looked for again soon, one that fails otherwise later.
func TestAfter(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		lost  int
		pause time.Duration
	}{"lost": {lostError{}, 1, lookAgain}, "failed": {ErrNotSupported, 0, failedPause}} {
		synctest.Test(t, func(t *testing.T) {
			e := &ears{events: make(chan gpu.Event, 2)}
			begin := time.Now()
			e.after(t.Context(), uuidA, c.err)
			if took := time.Since(begin); took != c.pause || len(e.events) != c.lost {
				t.Errorf("%s: %d events, after %s", name, len(e.events), took)
			}
			if c.lost > 0 {
				if ev := <-e.events; ev.GPU != uuidA || ev.Kind != gpu.EventLost || ev.GPUInstance != gpu.NoInstance || ev.ComputeInstance != gpu.NoInstance {
					t.Errorf("%+v", ev)
				}
			}
		})
	}
}

// registering is a GPU that has some events.
type registering struct {
	nvml.Device
	types              uint64
	supports, register nvml.Return
	wanted             uint64
	asked              func()
}

func (d *registering) GetSupportedEventTypes() (uint64, nvml.Return) {
	if d.asked != nil {
		d.asked()
	}
	return d.types, d.supports
}
func (d *registering) RegisterEvents(types uint64, _ nvml.EventSet) nvml.Return {
	d.wanted = types
	return d.register
}

// TestRegister: a GPU is asked for those of its events that gpuslot knows, and a set that it refuses is freed.
// While it is asked, the call is noted.
func TestRegister(t *testing.T) {
	const bit, xid, clock = nvml.EventTypeSingleBitEccError, nvml.EventTypeXidCriticalError, nvml.EventTypeClock
	for name, c := range map[string]struct {
		device registering
		create nvml.Return
		kinds  []gpu.EventKind
		freed  int
		fails  string
	}{
		"all that it has":   {registering{types: bit | xid | clock}, nvml.SUCCESS, []gpu.EventKind{gpu.EventXID, gpu.EventSingleBit}, 0, ""},
		"one":               {registering{types: bit}, nvml.SUCCESS, []gpu.EventKind{gpu.EventSingleBit}, 0, ""},
		"none of gpuslot's": {registering{types: clock}, nvml.SUCCESS, nil, 0, ErrNotSupported.Error()},
		"it does not say":   {registering{types: bit, supports: nvml.ERROR_UNKNOWN}, nvml.SUCCESS, nil, 0, "nvmlDeviceGetSupportedEventTypes"},
		"no set":            {registering{types: bit}, nvml.ERROR_UNKNOWN, nil, 0, "nvmlEventSetCreate"},
		"it refuses":        {registering{types: bit, register: nvml.ERROR_UNKNOWN}, nvml.SUCCESS, nil, 1, "nvmlDeviceRegisterEvents"},
	} {
		freed := 0
		set := &mock.EventSet{FreeFunc: func() nvml.Return { freed++; return nvml.SUCCESS }}
		e := &ears{calls: map[string]int{}, lib: &mock.Interface{EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return set, c.create }}}
		inFlight := ""
		c.device.asked = func() { inFlight = e.inFlight() }
		got, kinds, err := e.register(uuidA, &c.device)
		if !slices.Equal(kinds, c.kinds) || freed != c.freed || (got != nil) != (c.fails == "") {
			t.Errorf("%s: %v, %d freed, %v", name, kinds, freed, err)
		}
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v", name, err)
		}
		if inFlight != "nvmlDeviceRegisterEvents of "+uuidA {
			t.Errorf("%s: in flight: %q", name, inFlight)
		}
		if want := c.device.types & (bit | xid); c.fails == "" && c.device.wanted != want || len(e.calls) != 0 {
			t.Errorf("%s: asked for %d, want %d; in flight: %v", name, c.device.wanted, want, e.calls)
		}
	}
	if !errors.Is(callError(nvml.ERROR_GPU_IS_LOST), lostError{}) {
		t.Error("a lost GPU is not known as lost")
	}
}

// TestHearEnds: a GPU that is lost while it is listened to, or that cannot be listened to, is told and left alone for a while.
func TestHearEnds(t *testing.T) {
	for name, c := range map[string]struct {
		device       registering
		lost, states int
		pause        time.Duration
		waits        nvml.Return
	}{
		"lost":   {registering{types: nvml.EventTypeXidCriticalError}, 1, 2, lookAgain, nvml.ERROR_GPU_IS_LOST},
		"failed": {registering{types: nvml.EventTypeXidCriticalError}, 0, 2, failedPause, nvml.ERROR_UNKNOWN},
		"none":   {registering{}, 0, 1, failedPause, nvml.SUCCESS},
	} {
		synctest.Test(t, func(t *testing.T) {
			freed := 0
			set := &mock.EventSet{
				FreeFunc: func() nvml.Return { freed++; return nvml.SUCCESS },
				WaitFunc: func(uint32) (nvml.EventData, nvml.Return) { return nvml.EventData{}, c.waits },
			}
			e := &ears{calls: map[string]int{}, events: make(chan gpu.Event, 9), states: make(chan Listening, 9),
				lib: &mock.Interface{EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }}}
			begin := time.Now()
			e.hear(t.Context(), uuidA, &c.device)
			if took := time.Since(begin); took != c.pause || len(e.events) != c.lost || len(e.states) != c.states || freed != c.states-1 {
				t.Errorf("%s: after %s %d events, %d states, %d freed", name, took, len(e.events), len(e.states), freed)
			}
			for range c.states - 1 {
				if s := <-e.states; s.Err != nil || len(s.Kinds) != 1 {
					t.Errorf("%s: %+v", name, s)
				}
			}
			if s := <-e.states; s.Err == nil || len(e.calls) != 0 {
				t.Errorf("%s: %+v, in flight: %v", name, s, e.calls)
			}
		})
	}
}
