//go:build cgo

package cuda

import (
	"io"
	"os"
	"runtime"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Main is the client: it tries all steps, tells them on out, then holds still
// until its input ends, attached and with its context. The arguments are those
// of Start. It returns the exit status.
func Main(args []string, in io.Reader, out io.Writer) int {
	below, above, err := parse(args)
	if err != nil {
		return 2
	}
	released := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(released)
	}()
	done := make(chan struct{})
	go abandon(released, done)
	runtime.LockOSThread() // a context is current in a thread
	t := teller{out}
	ok := try(t, below, above)
	t.say(line{Tried: true})
	<-released
	if ok {
		ctxRelease()
	}
	close(done)
	return 0
}

// abandon ends a client whose call does not return and that no caller waits for.
func abandon(released, done <-chan struct{}) {
	<-released
	select {
	case <-done:
	case <-time.After(leaving):
		os.Exit(3)
	}
}

// try takes the steps and stops at the first that goes wrong; whether the
// context was made.
func try(t teller, below, above gpu.MiB) (context bool) {
	if !t.step(StepLoad, load) {
		return false
	}
	if v, ok := driverVersion(); ok {
		t.say(line{CUDA: &v})
	}
	var count int
	ok := t.step(StepInit, cuInit) && t.step(StepCount, func() Step { return deviceCount(&count) })
	if !ok {
		return false
	}
	t.say(line{Devices: &count})
	if !t.step(StepContext, ctxRetain) {
		return false
	}
	var free, total gpu.Bytes
	if !t.step(StepInfo, func() Step { return memInfo(&free, &total) }) {
		return true
	}
	t.say(line{Free: &free, Total: &total})
	ok = t.step(StepBelow, func() Step { return memAlloc(below) }) && t.step(StepFree, memFree)
	if ok && t.step(StepAbove, func() Step { return memAlloc(above) }) {
		memFree() // it should not have been had; the process ends soon
	}
	return true
}

// step takes one step and tells of it, before and after.
func (t teller) step(name string, do func() Step) bool {
	t.say(line{Begin: name})
	begin := time.Now()
	s := do()
	s.Name, s.Milliseconds = name, time.Since(begin).Milliseconds()
	t.say(line{Step: &s})
	return s.Code == Success
}
