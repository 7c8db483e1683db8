package daemons

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// State is how one control daemon is. It is a value: each round makes the next from the last.
type State struct {
	Wanted mps.Wanted
	// Checked is the last answer in which its limits were right.
	Checked mps.Checked
	// Err is why the last question was not answered so; nil if it was. failures counts
	// them in a row.
	Err      error
	failures int
	// Restarts counts the processes seen beyond the first.
	Restarts int
	// Otherwise says why it cannot serve although it is well: it was started with
	// other flags, or lacks its partitions. Empty if it can.
	Otherwise string
	// Servers is what its answers tell of its MPS servers.
	Servers ServerState
	// SelfTest is whether a server starts.
	SelfTest SelfTest
	// restartAt is when a daemon that does not answer may be restarted; zero for one that does.
	restartAt time.Time
}

// closeAfter is how many questions in a row a daemon may fail that is merely busy:
// any local account may keep its only connection for a moment. One that does
// not answer at all closes its GPU at once.
const closeAfter = 2

// next is the state after one more question.
func (s State) next(w mps.Wanted, p mps.Checked, err error) State {
	s.Wanted = w
	if err != nil {
		s.failures++
		s.Err = err
		return s
	}
	if s.Checked.PID != 0 && s.Checked.Process() != p.Process() {
		s.Restarts++
	}
	s.Checked, s.failures, s.Err = p, 0, nil
	s.Servers = s.Servers.next(p.States, p.At)
	s.SelfTest = s.SelfTest.seen(p)
	return s
}

// Closed says why the GPU takes no jobs; empty if it does. A wrong or missing
// daemon closes it at once.
func (s State) Closed() string {
	switch f := mps.FaultOf(s.Err); {
	case s.Err == nil && s.Otherwise != "":
		return s.Otherwise
	case s.Err == nil:
		return s.SelfTest.closed(s.Checked.Process())
	case f == mps.Busy && s.failures < closeAfter && !s.Checked.At.IsZero():
		return ""
	}
	return mps.Reason(s.Err)
}

// repairable says whether setting all daemons again may help.
func (s State) repairable() bool {
	switch mps.FaultOf(s.Err) {
	case mps.NotRunning, mps.Gone, mps.WrongLimits, mps.Foreign, mps.NotInstalled, mps.Unwritable:
		return true
	}
	return s.Checked.At.IsZero()
}

// Owns says whether a process is the daemon, or a server of it without clients.
func (s State) Owns(pid int) bool {
	return s.Checked.PID == pid ||
		slices.ContainsFunc(s.Checked.States, func(v mps.Server) bool { return v.PID == pid && len(v.Clients) == 0 })
}

// Pace is the time to the next round, at most most: it is short while a daemon or a server is
// not well, because jobs wait for the next answer.
func Pace(states map[gpu.UUID]State, most time.Duration, now time.Time) time.Duration {
	const soon, recovering = time.Second, 3 * time.Second
	for _, s := range states {
		if f := mps.FaultOf(s.Err); f == mps.Busy || f == mps.Wedged {
			most = min(most, soon) // the next attempt tells whether it is for good
		}
		if s.Servers.Faulted() || !s.Servers.waiting.IsZero() {
			most = min(most, recovering)
		}
		if s.SelfTest.hurries(now) {
			most = min(most, soon)
		}
	}
	return most
}

// LimitReadBack says how exactly the limit of the control daemon was read back.
func (s State) LimitReadBack() string {
	least, most := s.Wanted.ReadBack()
	switch {
	case s.SelfTest.exact && s.SelfTest.of.wanted == s.Wanted && s.SelfTest.of.daemon == s.Checked.Process():
		return "exact, by the log of an MPS server"
	case least == most:
		return "exact, by the reply of the control daemon"
	}
	return fmt.Sprintf("%d to %d MiB: the control daemon prints whole GiB", int64(least), int64(most))
}

// ServersText describes its MPS servers as its last answer had them.
func (s State) ServersText() string {
	if len(s.Checked.States) == 0 {
		return s.SelfTest.text(s.Checked.Process())
	}
	var parts []string
	for _, v := range s.Checked.States {
		text := ServerText(v, fmt.Sprintf("pid %d, uid %d, ", v.PID, v.UID))
		if slices.Contains(s.Checked.Stale, v.PID) {
			text += "; its clients get other limits than those now in force"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// ServerText is the state of one MPS server. Whose is its process and its account, which
// the node's page must not show.
func ServerText(s mps.Server, whose string) string {
	state, hint := string(s.Status), ""
	if s.Status == mps.StatusUnknown {
		state, hint = "listed", "; this control daemon reports no state"
	}
	clients := "clients"
	if len(s.Clients) == 1 {
		clients = "client"
	}
	return fmt.Sprintf("%s (%s%d %s%s)", state, whose, len(s.Clients), clients, hint)
}
