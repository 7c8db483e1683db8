package daemons

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// subject is what the outcome of a self-test holds for. Another process, other
// limits, another driver or account are tested again; nothing else is, because a
// control daemon backs off after servers that fail (550 and newer).
type subject struct {
	daemon process.ID
	wanted mps.Wanted
	driver string
	uid    uint32
}

// SelfTest is what is known of whether a control daemon gets a server up, before a
// job needs one. It is a value: each round makes the next.
type SelfTest struct {
	of subject
	// stays says that the jobs' own server was asked for; otherwise it is root's,
	// which makes way.
	stays bool
	// asked is when a server was asked for; zero if a daemon had one already.
	asked time.Time
	// tries counts the questions since a server was well.
	tries int
	// looks counts the rounds since that showed no server.
	looks int
	// over: nothing more is to be done.
	over bool
	// failure is why no server came; noDevice that the driver finds no GPU.
	failure  string
	noDevice bool
	// exact: the server that was asked for logged its limit to the byte, and it is the wanted
	// one. differs says that it is another.
	exact   bool
	differs string
	// well is when a server of the GPU was last seen to be well.
	well time.Time
}

// step is the next thing to do about a self-test.
type step string

const (
	rest step = ""
	ask  step = "ask"  // for a server
	read step = "read" // the log, since no server is there
	end  step = "end"  // the server that was asked for
	keep step = "keep" // that server, for jobs
)

const (
	// mostLooks is how many rounds a server may be neither there nor explained:
	// a real one without a GPU has ended within 0.3 s.
	mostLooks = 5
	// noDeviceWords are CUDA's for error 100.
	noDeviceWords = "no CUDA-capable device is detected"
)

// seen is the self-test after an answer of the daemon: a server that is well counts, whoever
// asked for it.
func (t SelfTest) seen(p mps.Checked) SelfTest {
	for _, s := range p.States {
		if serverWell(s) {
			t.well, t.failure, t.noDevice, t.tries = p.At, "", false, 0
		}
	}
	return t
}

func serverWell(s mps.Server) bool {
	return s.Status == mps.Active || s.Status == mps.StatusUnknown && s.Answers()
}

// next decides what to do after a good answer. Idle says that no job holds a part
// of the GPU: nothing is done beside jobs.
func (t SelfTest) next(of subject, stays bool, p mps.Checked, idle bool) (SelfTest, step) {
	if t.of != of {
		if !idle && len(p.States) == 0 {
			return t, rest
		}
		t = SelfTest{of: of, stays: stays, well: t.well, over: len(p.States) > 0}
		if t.over {
			return t, rest
		}
		return t, ask
	}
	if t.over {
		if t.failure == "" || t.noDevice || !idle || len(p.States) > 0 || p.At.Before(t.again()) {
			return t, rest
		}
		return SelfTest{of: of, stays: stays, well: t.well, tries: t.tries, failure: t.failure}, ask
	}
	for _, s := range p.States {
		switch {
		case s.UID != of.uid || len(s.Clients) > 0:
			t.over = true // a job brought its own
			return t, rest
		case !serverWell(s) || !idle:
			return t, rest
		case stays:
			t.over = true
			return t, keep
		default:
			return t, end
		}
	}
	if !t.well.Before(t.asked) {
		t.over = true // it came, and went
		return t, rest
	}
	t.looks++
	return t, read
}

// after is the self-test after a look into the log of its time.
func (t SelfTest) after(lines []string) SelfTest {
	reason, exited := "", ""
	for _, line := range lines {
		switch e, ok := mps.ParseEvent(line); {
		case !ok:
		case e.Kind == mps.ServerBroken && e.Reason != "":
			reason = e.Reason
		case e.Kind == mps.ServerExited && e.Status == 0:
			exited = "it ended without a reason, as by a signal"
		case e.Kind == mps.ServerExited:
			exited = fmt.Sprintf("it ended with status %d and gave no reason; "+
				"it does so where libcuda.so.1 is missing", e.Status)
		}
	}
	if reason = cmp.Or(reason, exited); reason == "" && t.looks >= mostLooks {
		reason = "none came, and the daemon's log gives no reason"
	}
	if reason != "" {
		t.failure, t.over, t.noDevice = reason, true, strings.Contains(reason, noDeviceWords)
	}
	return t
}

// again is when a test that failed is repeated on an idle GPU: a job of the account may have ended the server.
func (t SelfTest) again() time.Time { return t.asked.Add(serverPause.After(t.tries)) }

// limited compares the limit that the server logged with the wanted one.
func (t SelfTest) limited(l logged, server process.ID) SelfTest {
	want := gpu.Bytes(t.of.wanted.Limit.Bytes())
	known := l.server == server && l.of == t.of.wanted && l.limit.Known
	t.exact, t.differs = known && l.limit.Value == want, ""
	if known && !t.exact {
		t.differs = fmt.Sprintf("its MPS server, process %d, logged a limit of %d bytes, want %d",
			server.PID, l.limit.Value, want)
	}
	return t
}

// pending says that the outcome is waited for.
func (t SelfTest) pending() bool { return !t.asked.IsZero() && !t.over }

// hurries says that it is to be had soon: a server that waits for the end of a
// job does not drive the loop.
func (t SelfTest) hurries(now time.Time) bool {
	return t.pending() && now.Sub(t.asked) < waitingTooLong
}

// closed says why the GPU takes no jobs: only the server that all its jobs need
// counts, and not on a node where no server can start.
func (t SelfTest) closed(daemon process.ID) string {
	if t.differs != "" && t.of.daemon == daemon {
		return t.differs + ": see who sets limits there, then: gpuslot gpu restart"
	}
	if !t.stays || t.failure == "" || t.noDevice || t.of.daemon != daemon {
		return ""
	}
	return fmt.Sprintf("no MPS server starts for uid %d, under which all its jobs run: %s; it is tried again at %s. "+
		"To try sooner, remove the cause, then: gpuslot gpu restart", t.of.uid, t.failure, t.again().Format(time.TimeOnly))
}

// text is for the status of a daemon that has no server now.
func (t SelfTest) text(daemon process.ID) string {
	known := t.of.daemon == daemon
	switch {
	case known && t.noDevice:
		return fmt.Sprintf("not provable without a GPU (%s)", t.failure)
	case known && t.failure != "":
		return fmt.Sprintf("does not start (tried at %s): %s", t.asked.Format(time.DateTime), t.failure)
	case known && t.pending() && t.well.Before(t.asked):
		return "no server yet (one is being tried)"
	case !t.well.IsZero():
		return fmt.Sprintf("starts with the first job (last proven at %s)", t.well.Format(time.DateTime))
	}
	return "no server yet (starts with the first job)"
}
