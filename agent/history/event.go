// Package history keeps on disk what happened on a node: events of jobs, GPUs
// and the node, for "gpuslot why", and one record of each job that used a GPU, for
// "gpuslot usage" and "gpuslot advise".
package history

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
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
	// By is who did it, as ByAgent; empty where it happened by itself.
	By string `json:"by,omitempty"`
	// Text is a sentence for people.
	Text string `json:"text"`
}

// Who does what events are about, and who closes GPUs (agent/closures).
const (
	ByAgent    = "agent"
	ByOperator = "operator"
)

// EventKind names what happened.
type EventKind string

// The kinds of events.
const (
	EventStart    EventKind = "agent-start"
	EventPlan     EventKind = "plan"
	EventOpen     EventKind = "open"
	EventClose    EventKind = "close"
	EventFault    EventKind = "fault"
	EventRestart  EventKind = "restart"
	EventAdmitted EventKind = "admitted"
	EventRefused  EventKind = "refused"
	EventBreach   EventKind = "breach"
	EventHold     EventKind = "hold"
	EventEnd      EventKind = "end"
	EventLayout   EventKind = "layout"
	EventNode     EventKind = "node"
	// EventContention is of a GPU whose jobs slow each other down, or no longer do.
	EventContention EventKind = "contention"
)

// EventLog returns the files of the events: at most five of 2 MiB, some tens of
// thousands of events.
func EventLog(p config.Paths) store.Log {
	return store.Log{Dir: filepath.Join(p.State, "history"), Name: "events", Size: 2 << 20, Older: 4}
}

// Events returns the events that are still on disk, the oldest first. It skips lines
// that are no event, such as one that a power cut tore.
func Events(p config.Paths) ([]Event, error) {
	var all []Event
	err := EventLog(p).Read(func(line []byte) {
		var e Event
		if json.Unmarshal(line, &e) == nil && !e.Time.IsZero() {
			all = append(all, e)
		}
	})
	return all, err
}
