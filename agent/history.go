package agent

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// Event is one thing that happened to a GPU, a slot or a job, for "gpuslot why".
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// GPU, Slot ("slot1_2") and Job ("cluster.proc") are those it is about;
	// empty for the node.
	GPU  gpu.UUID `json:"gpu,omitempty"`
	Slot string   `json:"slot,omitempty"`
	Job  string   `json:"job,omitempty"`
	// By is who did it, where somebody did: "agent", "operator".
	By string `json:"by,omitempty"`
	// Text is a sentence for people.
	Text string `json:"text"`
}

// EventKind names what happened.
type EventKind string

// The kinds of events.
const (
	EventStart    EventKind = "agent-start"
	EventPlan     EventKind = "plan"
	EventOpen     EventKind = "open"
	EventClose    EventKind = "close"
	EventFault    EventKind = "fault"
	EventCulprit  EventKind = "culprit"
	EventRestart  EventKind = "restart"
	EventAdmitted EventKind = "admitted"
	EventRefused  EventKind = "refused"
	EventBreach   EventKind = "breach"
	EventHold     EventKind = "hold"
	EventEnd      EventKind = "end"
	EventLayout   EventKind = "layout"
	EventNode     EventKind = "node"
)

// Who does things.
const (
	byAgent    = "agent"
	byOperator = "operator"
)

// historyOf is where events are kept: at most five files of 2 MiB, some tens of
// thousands of events.
func historyOf(p config.Paths) lines {
	return lines{dir: filepath.Join(p.State, "history"), name: "events", most: 2 << 20, kept: 4}
}

// Events are those that are still known, the oldest first. What is not an
// event, such as a line that a power cut tore, is skipped.
func Events(p config.Paths) ([]Event, error) {
	var all []Event
	err := historyOf(p).read(func(line []byte) {
		var e Event
		if json.Unmarshal(line, &e) == nil && !e.Time.IsZero() {
			all = append(all, e)
		}
	})
	return all, err
}

// note keeps an event.
func (a *Agent) note(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Slot = shortName(e.Slot)
	a.keeper.put(historyOf(a.view.Load().config.Paths), e)
}
