//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	// eventWait is how long one wait for events lasts, and so how long a GPU is
	// listened to after the end was asked for.
	eventWait = time.Second
	// lookAgain is the pause before GPUs that are not listened to are looked
	// for: new ones, lost ones that are back, those that failed. What happens to
	// a GPU that is back is not told before, so it is short.
	lookAgain = time.Second
	// failedPause is the pause after a GPU cannot be listened to although it is there.
	failedPause = 30 * lookAgain
	// stopLimit bounds the wait for calls that are in flight at the end.
	stopLimit = 3 * eventWait
)

// eventKinds are the events that gpuslot asks for, if the GPU has them.
var eventKinds = []struct {
	kind gpu.EventKind
	code uint64
}{
	{gpu.EventXID, nvml.EventTypeXidCriticalError},
	{gpu.EventSingleBit, nvml.EventTypeSingleBitEccError},
	{gpu.EventDoubleBit, nvml.EventTypeDoubleBitEccError},
	{gpu.EventUnavailable, nvml.EventTypeGpuUnavailableError},
	{gpu.EventRecoveryAction, nvml.EventTypeGpuRecoveryAction},
}

// Watch tells the events of all GPUs until ctx ends. Tell and state are called
// in the caller's goroutine, one at a time: tell with each event, state when a
// GPU is listened to from now on, or why it is not. What happened before is not
// told (nvmlDeviceRegisterEvents).
//
// Each GPU has an event set and a thread of its own, none of which is the
// worker of the other calls: a GPU that hangs or is lost silences no other. A
// GPU that is lost is told once, and listened to again when it is back.
//
// Watch ends with nil, or an error that names the calls that have not
// returned; then the Library must not be closed. It matches ErrNotSupported
// where the driver has no events.
func (l *Library) Watch(ctx context.Context, tell func(gpu.Event), state func(Listening)) error {
	for _, name := range []string{"nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
		"nvmlEventSetWait", "nvmlEventSetFree"} {
		if l.lib.Extensions().LookupSymbol(name) != nil {
			return fmt.Errorf("listen to GPUs: %w: it has no %s", ErrNotSupported, name)
		}
	}
	e := &ears{
		lib: l.lib,
		// Version 1 fills in no instance ids.
		instances: l.lib.Extensions().LookupSymbol("nvmlEventSetWait_v2") == nil,
		events:    make(chan gpu.Event, 64), states: make(chan Listening, 16), ended: make(chan gpu.UUID),
		calls: map[string]int{},
	}
	return e.listen(ctx, tell, state)
}

// ears listens to all GPUs of a node.
type ears struct {
	lib       nvml.Interface
	instances bool
	events    chan gpu.Event
	states    chan Listening
	ended     chan gpu.UUID // of the GPU that is listened to no more

	mu    sync.Mutex
	calls map[string]int           // in flight, to name those that hang
	names map[nvml.Device]gpu.UUID // of the handles that were found
}

// listen owns the set of GPUs that are listened to. It calls no NVML itself.
func (e *ears) listen(ctx context.Context, tell func(gpu.Event), state func(Listening)) error {
	heard := map[gpu.UUID]bool{}
	var all sync.WaitGroup
	found := make(chan map[gpu.UUID]nvml.Device)
	looking := false
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case ev := <-e.events:
			tell(ev)
		case s := <-e.states:
			state(s)
		case u := <-e.ended:
			delete(heard, u)
		case <-again.C:
			again.Reset(lookAgain)
			if !looking { // a look that hangs is not followed by another
				looking = true
				known := len(heard)
				all.Go(func() { send(ctx, found, e.look(known)) })
			}
		case devices := <-found:
			looking = false
			for u, d := range devices {
				if !heard[u] {
					heard[u] = true
					all.Go(func() { e.hear(ctx, u, d); send(ctx, e.ended, u) })
				}
			}
		case <-ctx.Done():
			return e.stop(&all)
		}
	}
}

// stop waits for what is in flight.
func (e *ears) stop(all *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("stop listening to GPUs: %s has not returned; the driver may hang, see dmesg for NVRM lines",
			e.inFlight())
	}
}

func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// look finds the GPUs that answer, unless as many are heard as there are. By index, since a
// lookup by UUID may fail for any GPU that is lost (nvml.h, nvmlDeviceGetHandleByUUID).
func (e *ears) look(heard int) map[gpu.UUID]nvml.Device {
	defer e.calling("nvmlDeviceGetHandleByIndex")()
	devices := map[gpu.UUID]nvml.Device{}
	count, ret := e.lib.DeviceGetCount()
	if ret != nvml.SUCCESS || count == heard {
		return nil
	}
	for i := range count {
		d, ret := e.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		text, ret := d.GetUUID()
		if ret != nvml.SUCCESS {
			continue
		}
		if u, err := gpu.ParseUUID(text); err == nil {
			devices[u] = d
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = map[nvml.Device]gpu.UUID{}
	for u, d := range devices {
		e.names[d] = u
	}
	return devices
}

// hear listens to one GPU until it is lost, fails, or ctx ends.
func (e *ears) hear(ctx context.Context, u gpu.UUID, d nvml.Device) {
	set, kinds, err := e.register(u, d)
	if err != nil {
		send(ctx, e.states, Listening{GPU: u, Err: fmt.Errorf("listen to %s: %w", u, err)})
		e.after(ctx, u, err)
		return
	}
	defer func() { _ = set.Free() }() // a set that cannot be freed is gone with its GPU
	send(ctx, e.states, Listening{GPU: u, Kinds: kinds})
	for ctx.Err() == nil {
		ev, ret := e.wait(u, set)
		switch ret {
		case nvml.SUCCESS:
			if known := e.event(u, ev); known.Kind != "" {
				send(ctx, e.events, known)
			}
		case nvml.ERROR_TIMEOUT:
		default:
			err := callError(ret)
			send(ctx, e.states, Listening{GPU: u, Err: fmt.Errorf("listen to %s: nvmlEventSetWait: %w", u, err)})
			e.after(ctx, u, err)
			return
		}
	}
}

// after tells a loss, and keeps a GPU that cannot be heard from being asked in
// a circle; a lost one is not found again before it is back.
func (e *ears) after(ctx context.Context, u gpu.UUID, err error) {
	pause := failedPause
	if errors.Is(err, lostError{}) {
		pause = lookAgain
		send(ctx, e.events, gpu.Event{GPU: u, Kind: gpu.EventLost, GPUInstance: gpu.NoInstance,
			ComputeInstance: gpu.NoInstance, Time: time.Now()})
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

func (e *ears) register(u gpu.UUID, d nvml.Device) (nvml.EventSet, []gpu.EventKind, error) {
	defer e.calling("nvmlDeviceRegisterEvents of " + u.String())()
	types, ret := d.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("nvmlDeviceGetSupportedEventTypes: %w", callError(ret))
	}
	var kinds []gpu.EventKind
	var wanted uint64
	for _, k := range eventKinds {
		if types&k.code != 0 {
			kinds, wanted = append(kinds, k.kind), wanted|k.code
		}
	}
	if wanted == 0 {
		return nil, nil, ErrNotSupported
	}
	set, ret := e.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("nvmlEventSetCreate: %w", callError(ret))
	}
	if ret := d.RegisterEvents(wanted, set); ret != nvml.SUCCESS {
		_ = set.Free()
		return nil, nil, fmt.Errorf("nvmlDeviceRegisterEvents: %w", callError(ret))
	}
	return set, kinds, nil
}

func (e *ears) wait(u gpu.UUID, set nvml.EventSet) (nvml.EventData, nvml.Return) {
	defer e.calling("nvmlEventSetWait of " + u.String())()
	return set.Wait(uint32(eventWait.Milliseconds()))
}

// of is the GPU that an event names: NVIDIA's mock library gives the events of all GPUs
// to each listener. An event that names none is of the GPU that is listened to.
func (e *ears) of(u gpu.UUID, data nvml.EventData) gpu.UUID {
	if data.Device == nil {
		return u
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if named, known := e.names[data.Device]; known {
		return named
	}
	return u
}

// inMIG reports whether the event's GPU is in MIG mode, without which no event is of an
// instance, whatever it says.
func (e *ears) inMIG(data nvml.EventData) bool {
	if data.Device == nil {
		return true
	}
	defer e.calling("nvmlDeviceGetMigMode")()
	now, _, ret := data.Device.GetMigMode()
	return ret == nvml.SUCCESS && now == nvml.DEVICE_MIG_ENABLE
}

// event translates NVML's; its kind is empty if no caller asked for it.
func (e *ears) event(u gpu.UUID, data nvml.EventData) gpu.Event {
	ev := gpu.Event{GPU: e.of(u, data), GPUInstance: gpu.NoInstance, ComputeInstance: gpu.NoInstance, Time: time.Now()}
	for _, k := range eventKinds {
		if data.EventType == k.code {
			ev.Kind = k.kind
		}
	}
	if ev.Kind != gpu.EventXID {
		return ev
	}
	ev.XID = int(min(data.EventData, gpu.UnknownXID))
	const none = 0xFFFFFFFF // nvml.h, nvmlEventData_t
	if !e.instances || data.GpuInstanceId == none && data.ComputeInstanceId == none || !e.inMIG(data) {
		return ev
	}
	if data.GpuInstanceId != none {
		ev.GPUInstance = int(data.GpuInstanceId)
	}
	if data.ComputeInstanceId != none {
		ev.ComputeInstance = int(data.ComputeInstanceId)
	}
	return ev
}

// calling notes a call in flight until the function that it returns is called.
func (e *ears) calling(name string) func() {
	e.count(name, 1)
	return func() { e.count(name, -1) }
}

func (e *ears) count(name string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls[name] += n; e.calls[name] == 0 {
		delete(e.calls, name)
	}
}

func (e *ears) inFlight() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(sortedKeys(e.calls), ", ")
}
