package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// trialOf is what the outcome of a trial holds for. Another process, other
// limits, another driver or account are tried anew; nothing else is, because a
// control daemon backs off after servers that fail (550 and newer).
type trialOf struct {
	daemon process.ID
	wanted mps.Wanted
	driver string
	uid    uint32
}

// trial is what is known of whether a control daemon gets a server up, before a
// job needs one. It is a value: each round makes the next.
type trial struct {
	of trialOf
	// stays says that the jobs' own server was asked for; otherwise it is root's,
	// which makes way.
	stays bool
	// asked is when a server was asked for; zero if a daemon had one already.
	asked time.Time
	// looks counts the rounds since that showed no server.
	looks int
	// over: nothing more is to be done.
	over bool
	// failure is why no server came; noDevice that the driver finds no GPU.
	failure  string
	noDevice bool
	// proven is when a server of the GPU was last seen to be well.
	proven time.Time
}

// trialStep is the next thing to do about a trial.
type trialStep string

const (
	trialRests trialStep = ""
	trialAsks  trialStep = "ask"  // for a server
	trialReads trialStep = "read" // the log, since no server is there
	trialEnds  trialStep = "end"  // the server that was asked for
)

const (
	// trialLooks is how many rounds a server may be neither there nor explained:
	// a real one without a GPU has ended within 0.3 s.
	trialLooks = 5
	// noDeviceWords are CUDA's for error 100.
	noDeviceWords = "no CUDA-capable device is detected"
)

// seen is the trial after a proof: a server that is well proves itself, whoever
// asked for it.
func (t trial) seen(p mps.Proof) trial {
	for _, s := range p.States {
		if serverWell(s) {
			t.proven, t.failure, t.noDevice = p.At, "", false
		}
	}
	return t
}

func serverWell(s mps.Server) bool {
	return s.Status == mps.Active || s.Status == mps.StatusUnknown && s.Answers()
}

// next decides what to do after a good proof. Idle says that no job holds a part
// of the GPU: nothing is done beside jobs.
func (t trial) next(of trialOf, stays bool, p mps.Proof, idle bool) (trial, trialStep) {
	if t.of != of {
		if !idle && len(p.States) == 0 {
			return t, trialRests
		}
		t = trial{of: of, stays: stays, proven: t.proven, over: len(p.States) > 0}
		if t.over {
			return t, trialRests
		}
		return t, trialAsks
	}
	if t.over {
		return t, trialRests
	}
	for _, s := range p.States {
		switch {
		case s.UID != of.uid || len(s.Clients) > 0:
			t.over = true // a job brought its own
			return t, trialRests
		case !serverWell(s) || !idle:
			return t, trialRests
		case stays:
			t.over = true
			return t, trialRests
		default:
			return t, trialEnds
		}
	}
	if !t.proven.Before(t.asked) {
		t.over = true // it came, and went
		return t, trialRests
	}
	t.looks++
	return t, trialReads
}

// told is the trial after a look into the log of its time.
func (t trial) told(lines []string) trial {
	exited := ""
	for _, line := range lines {
		switch e, ok := mps.ParseEvent(line); {
		case !ok:
		case e.Kind == mps.ServerBroken && e.Reason != "":
			t.failure = e.Reason
		case e.Kind == mps.ServerExited:
			exited = fmt.Sprintf("it ended with status %d and gave no reason; it does so where libcuda.so.1 is missing", e.Status)
		}
	}
	if t.failure == "" {
		t.failure = exited
	}
	if t.failure == "" && t.looks >= trialLooks {
		t.failure = "none came, and the daemon's log gives no reason"
	}
	t.over, t.noDevice = t.failure != "", strings.Contains(t.failure, noDeviceWords)
	return t
}

// pending says that the outcome is waited for.
func (t trial) pending() bool { return !t.asked.IsZero() && !t.over }

// hurries says that it is to be had soon: a server that waits for the end of a
// job does not drive the loop.
func (t trial) hurries(now time.Time) bool {
	return t.pending() && now.Sub(t.asked) < waitingTooLong
}

// closed says why the GPU takes no jobs: only the server that all its jobs need
// counts, and not on a node where no server can start.
func (t trial) closed(daemon process.ID) string {
	if !t.stays || t.failure == "" || t.noDevice || t.of.daemon != daemon {
		return ""
	}
	return fmt.Sprintf("no MPS server starts for uid %d, under which all its jobs run: %s; remove the cause, then: gpuslot mps restart", t.of.uid, t.failure)
}

// text is for the status of a daemon that has no server now.
func (t trial) text(daemon process.ID) string {
	known := t.of.daemon == daemon
	switch {
	case known && t.noDevice:
		return fmt.Sprintf("not provable without a GPU (%s)", t.failure)
	case known && t.failure != "":
		return fmt.Sprintf("does not start (tried at %s): %s", t.asked.Format(time.DateTime), t.failure)
	case known && t.pending() && t.proven.Before(t.asked):
		return "no server yet (one is being tried)"
	case !t.proven.IsZero():
		return fmt.Sprintf("starts with the first job (last proven at %s)", t.proven.Format(time.DateTime))
	}
	return "no server yet (starts with the first job)"
}
