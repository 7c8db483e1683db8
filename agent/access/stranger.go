package access

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Servers lists a control daemon's servers with their clients: see mps.Daemon.Servers.
type Servers interface {
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
}

// strangerTimeout bounds the look at a GPU that goes to another account.
const strangerTimeout = 3 * time.Second

// Stranger says which process of another account keeps the GPU's MPS server, empty
// if none does: MPS serves one account at a time, and a job of another waits without
// a word. Checked is the control daemon's last. It answers that where it was made after
// the other accounts' pipe directory was closed; otherwise the control daemon is asked.
// Sweep drops the jobs that have ended, and their access.
func (l *List) Stranger(ctx context.Context, u gpu.UUID, uid uint32, checked mps.Checked, sweep func()) string {
	if l.openToOthers(u, uid) {
		sweep()
	}
	if l.openToOthers(u, uid) {
		return "a job of another account has just ended there" // or runs: then the tenancy says so
	}
	if l.freeOfOthers(u, uid, checked) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, strangerTimeout)
	defer cancel()
	now := time.Now()
	servers, err := l.servers.Servers(ctx, u)
	if err != nil {
		return fmt.Sprintf("whether another account still computes there is not known: %v", err)
	}
	if s, ok := serverOfOthers(servers, uid); ok {
		return stays(s)
	}
	l.forgetLeft(u, now)
	return ""
}

// stays says that a server cannot make way.
func stays(s mps.Server) string {
	return fmt.Sprintf("process %d of uid %d, whose job is not there, is still a client of its MPS server, "+
		"which serves one account at a time: end that process", s.Clients[0], s.UID)
}

// serverOfOthers is a server with clients of an account that is not uid.
func serverOfOthers(servers []mps.Server, uid uint32) (mps.Server, bool) {
	for _, s := range servers {
		if s.UID != uid && len(s.Clients) > 0 {
			return s, true
		}
	}
	return mps.Server{}, false
}

// openToOthers says whether the pipe directory is open to another account.
func (l *List) openToOthers(u gpu.UUID, uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.open {
		if e.GPU == u && e.UID != uid {
			return true
		}
	}
	return false
}

// freeOfOthers says whether a health check shows that no other account computes there.
func (l *List) freeOfOthers(u gpu.UUID, uid uint32, checked mps.Checked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e, at := range l.left {
		if e.GPU == u && e.UID != uid && !checked.At.After(at) {
			return false
		}
	}
	_, others := serverOfOthers(checked.States, uid)
	return !others
}

// forgetLeft forgets who left a GPU before it was seen to be free.
func (l *List) forgetLeft(u gpu.UUID, seen time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e, at := range l.left {
		if e.GPU == u && at.Before(seen) {
			delete(l.left, e)
		}
	}
}

// LeftBehind says, by the control daemon's last health check, which process computes on a GPU
// after the last job of its account left it, empty if none does: then START must keep
// jobs away. Own is the agent's account, whose clients are its own looks at the GPU.
func (l *List) LeftBehind(u gpu.UUID, own uint32, checked mps.Checked) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range checked.States {
		e := Entry{u, s.UID}
		if s.UID != own && len(s.Clients) > 0 && !l.open[e] && checked.At.After(l.left[e]) {
			return stays(s)
		}
	}
	return ""
}
