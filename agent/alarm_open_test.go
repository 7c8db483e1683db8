package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestOpenIsKept: what an operator opened stays open, though the agent is
// killed as soon as it has said so.
func TestOpenIsKept(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	paths := ta.view.Load().config.Paths
	ta.troubles.Event(gpu.Event{GPU: uuid(0), Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	next := func() bool {
		t.Helper()
		a := &Agent{}
		if err := a.recallTroubles(paths); err != nil {
			t.Fatal(err)
		}
		return a.troubles.Verdict(uuid(0), time.Now()).Closed()
	}
	if err := ta.keepTroubles(paths); err != nil || !next() {
		t.Fatalf("the next agent does not know of it (%v)", err)
	}
	if _, err := ta.open("0", "", true); err != nil {
		t.Fatal(err)
	}
	if next() {
		t.Error("the next agent closes it again")
	}
}

// TestTroublesAreKeptUnseen: they are kept also while the GPUs do not say how they are.
func TestTroublesAreKeptUnseen(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	mute := errors.New("mute")
	ta.alarms = muteAlarms{mute}
	v := ta.view.Load()
	ta.troubles.Event(gpu.Event{GPU: uuid(0), Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	if err := ta.seeConditions(t.Context(), v); !errors.Is(err, mute) {
		t.Fatalf("%v", err)
	}
	var next Agent
	if err := next.recallTroubles(v.config.Paths); err != nil {
		t.Fatal(err)
	}
	if !next.troubles.Verdict(uuid(0), time.Now()).Closed() {
		t.Error("the next agent does not know of it")
	}
}

// muteAlarms are of GPUs that do not say how they are.
type muteAlarms struct{ err error }

func (m muteAlarms) Watch(context.Context, func(gpu.Event)) error { return m.err }

func (m muteAlarms) Conditions(context.Context, []gpu.UUID) ([]gpu.Condition, error) {
	return nil, m.err
}
