// Package simulate replays a stream of jobs over a pool of nodes under several
// policies, in simulated time: what a site would gain by sharing its GPUs. Each
// kind of node is planned by agent/plan, layouts of MIG devices by mig, so that
// what is simulated is what the agent would do. How jobs slow each other down is
// a Model with stated parameters (docs/simulate.md). It reads no node and no clock.
// Start at Run.
package simulate

import (
	"io"
	"time"
)

// Jobs is a stream of jobs in the order of their arrival. Next returns io.EOF
// after the last one.
type Jobs interface {
	Next() (Job, error)
}

// List is a stream of jobs in memory, in the order of their arrival.
func List(jobs ...Job) Jobs { return &list{jobs} }

type list struct{ rest []Job }

func (l *list) Next() (Job, error) {
	if len(l.rest) == 0 {
		return Job{}, io.EOF
	}
	j := l.rest[0]
	l.rest = l.rest[1:]
	return j, nil
}

// Options are called while a run goes on.
type Options struct {
	// Trace is called at every start and end, in the order of time; may be nil.
	Trace func(Event)
	// Progress is called now and then with how far the run is; may be nil.
	Progress func(Progress)
}

// EventKind says what happened to a job.
type EventKind string

// A job got a slot; its slot was given back; no slot of the pool can ever hold it.
const (
	Start  EventKind = "start"
	End    EventKind = "end"
	Refuse EventKind = "refuse"
)

// Event is one event of one job.
type Event struct {
	At   time.Duration
	Kind EventKind
	// Job is the job's number in the stream, from 0; Name its name.
	Job  int
	Name string
	// Place is where it runs; empty if refused.
	Place Place
}

// Place is a part of the pool: a GPU, or a MIG device of one.
type Place struct {
	// Group is the name of the nodes, Node the node's number among them, from 0.
	Group string
	Node  int
	// GPU is the GPU's number on the node in the order of PCI addresses; of a job on
	// several whole GPUs, or on one of several, -1.
	GPU int
	// Device is the profile and start of a MIG device ("3g.20gb@4"); else empty.
	Device string
}

// Progress is how far a run is.
type Progress struct {
	// At is the simulated time.
	At time.Duration
	// Read, Started and Ended are numbers of jobs.
	Read, Started, Ended int
}
