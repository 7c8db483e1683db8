package ending

import (
	"runtime"
	"testing"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestTurns: a job that asks without end gets one answer at a time.
func TestTurns(t *testing.T) {
	e := New(Options{})
	st := starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	first, err := e.turns.take(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan func())
	go func() {
		release, _ := e.turns.take(t.Context(), st)
		second <- release
	}()
	for { // until the second one waits
		e.turns.mu.Lock()
		waiting := e.turns.by[st].waiting
		e.turns.mu.Unlock()
		if waiting == 2 {
			break
		}
		runtime.Gosched()
	}
	if _, err := e.turns.take(t.Context(), st); err == nil {
		t.Error("a third question is let in")
	}
	other, err := e.turns.take(t.Context(), starter.Starter{ID: process.ID{PID: 101, Started: 1}, Slot: "slot1_2"})
	if err != nil {
		t.Errorf("another job must wait: %v", err)
	}
	other()
	first()
	(<-second)()
	again, err := e.turns.take(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	again()
	e.Forget(st)
	if _, kept := e.turns.by[st]; kept {
		t.Error("a job that has ended is kept")
	}
}
