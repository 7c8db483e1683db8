package daemons

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/systemd"
)

// ServerState is what successive answers of a control daemon tell of its MPS servers. It is a
// value: each answer makes the next.
type ServerState struct {
	// since is when a server was first seen in FAULT, or waiting; zero if none is.
	faulted, waiting time.Time
	// pid is that server.
	pid int
	// clients are those that a server in FAULT still has: until they are gone it
	// takes no others.
	clients []int
	// told says that the fault was counted and noted, and well is when the last round began that met none.
	told bool
	well time.Time
	// faults are when the latest faults began.
	faults []time.Time
	// active is when all servers there were last known to be well.
	active time.Time
}

// Faulted says that a server met a fatal GPU error and serves nobody.
func (s ServerState) Faulted() bool { return !s.faulted.IsZero() }

// ActiveAt is when all servers there were last known to be well; zero if never.
func (s ServerState) ActiveAt() time.Time { return s.active }

const (
	// waitingTooLong is how long a server may be INITIALIZING; a second is usual.
	waitingTooLong = 30 * time.Second
	// leftoverAfter is how long clients of a server in FAULT have to end by
	// themselves: they all met the error.
	leftoverAfter = 15 * time.Second
	// A GPU that faults often stays closed for serverPause after each recovery.
	serverFlapWindow = time.Hour
	serverFlapsFree  = 2
	// maxServerFaults is enough for the longest pause.
	maxServerFaults = 8
)

var serverPause = backoff.Doubling{First: time.Minute, Longest: 30 * time.Minute}

// next is the state after an answer.
func (s ServerState) next(servers []mps.Server, at time.Time) ServerState {
	was := s
	s.faulted, s.waiting, s.pid, s.clients = time.Time{}, time.Time{}, 0, nil
	for _, srv := range servers {
		switch srv.Status {
		case mps.Faulted:
			s.faulted, s.pid = since(was.faulted, at), srv.PID
			s.clients = append(s.clients, srv.Clients...)
		case mps.Initializing, mps.Unreadable:
			s.waiting, s.pid = since(was.waiting, at), srv.PID
		}
	}
	switch {
	case !s.faulted.IsZero() && was.faulted.IsZero():
		s.told = false
		s.faults = append(slices.Clone(s.faults), at)
		s.faults = s.faults[max(0, len(s.faults)-maxServerFaults):]
	case s.faulted.IsZero() && s.waiting.IsZero():
		s.active = at
	}
	return s
}

func since(before, now time.Time) time.Time {
	if before.IsZero() {
		return now
	}
	return before
}

// Closed says why the GPU takes no jobs; empty if nothing of its servers hinders.
func (s ServerState) Closed(now time.Time) string {
	switch {
	case !s.faulted.IsZero():
		return fmt.Sprintf("its MPS server (pid %d) is in FAULT since %s: a client met a fatal GPU error, "+
			"and it serves nobody until %d clients have ended; gpuslot ends those that are left after %s",
			s.pid, s.faulted.Format(time.TimeOnly), len(s.clients), leftoverAfter)
	case !s.waiting.IsZero() && now.Sub(s.waiting) > waitingTooLong:
		return fmt.Sprintf("its MPS server (pid %d) is not ready since %s: jobs would wait for it without end; "+
			"see its log (%s) and restart it: gpuslot gpu restart",
			s.pid, s.waiting.Format(time.TimeOnly), systemd.JournalCommand("gpuslot-mps@*"))
	case now.Before(s.pausedUntil()):
		return fmt.Sprintf("its MPS server met %d fatal GPU errors within an hour: it opens again at %s; "+
			"gpuslot why says which jobs were there each time",
			len(s.recent(now)), s.pausedUntil().Format(time.TimeOnly))
	}
	return ""
}

// recent are the faults that count now.
func (s ServerState) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(s.faults), func(t time.Time) bool { return now.Sub(t) > serverFlapWindow })
}

// pausedUntil is when a GPU that faulted often may open again; not later than its last fault if it may.
// The last fault counts those before it.
func (s ServerState) pausedUntil() time.Time {
	if len(s.faults) == 0 {
		return time.Time{}
	}
	last := s.faults[len(s.faults)-1]
	return last.Add(serverPause.After(len(s.recent(last)) - serverFlapsFree))
}

// leftovers are the clients that keep a server in FAULT for too long. A signal
// to them harms nobody: their work is gone.
func (s ServerState) leftovers(now time.Time) []int {
	if s.faulted.IsZero() || now.Sub(s.faulted) < leftoverAfter {
		return nil
	}
	return s.clients
}
