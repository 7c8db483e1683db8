package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// strangerTimeout bounds the look at a GPU that goes to another account.
const strangerTimeout = 3 * time.Second

// stranger says which process of another account keeps the GPU's MPS server, empty
// if none does: MPS serves one account at a time, and a job of another waits without
// a word. The last proof answers that where it was made after the other accounts'
// pipe directory was closed; otherwise the control daemon is asked.
func (a *Agent) stranger(ctx context.Context, g *plan.GPU, uid uint32, proof mps.Proof) string {
	if g.Tenancy.Policy == config.TenancyMultiUser {
		return ""
	}
	if a.jobs.access.openToOthers(g.UUID, uid) {
		a.sweepNow()
	}
	if a.jobs.access.openToOthers(g.UUID, uid) {
		return "a job of another account has just ended there" // or runs: then the tenancy says so
	}
	if a.jobs.access.freeOfOthers(g.UUID, uid, proof) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, strangerTimeout)
	defer cancel()
	now := time.Now()
	servers, err := a.clients.Servers(ctx, g.UUID)
	if err != nil {
		return fmt.Sprintf("whether another account still computes there is not known: %v", err)
	}
	if s, ok := serverOfOthers(servers, uid); ok {
		return stays(s)
	}
	a.jobs.access.forgetLeft(g.UUID, now)
	return ""
}

// stays tells of a server that cannot make way.
func stays(s mps.Server) string {
	return fmt.Sprintf("process %d of uid %d, whose job is not there, is still a client of its MPS server, which serves one account at a time: end that process", s.Clients[0], s.UID)
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
func (l *accessList) openToOthers(u gpu.UUID, uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range l.open {
		if d.gpu == u && d.uid != uid {
			return true
		}
	}
	return false
}

// freeOfOthers says whether a proof shows that no other account computes there.
func (l *accessList) freeOfOthers(u gpu.UUID, uid uint32, proof mps.Proof) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, at := range l.left {
		if d.gpu == u && d.uid != uid && !proof.At.After(at) {
			return false
		}
	}
	_, others := serverOfOthers(proof.States, uid)
	return !others
}

// forgetLeft forgets who left a GPU before it was seen to be free.
func (l *accessList) forgetLeft(u gpu.UUID, seen time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, at := range l.left {
		if d.gpu == u && at.Before(seen) {
			delete(l.left, d)
		}
	}
}

// leftBehind says, by the last proof, which process computes on a GPU after the last
// job of its account left it: then START must keep jobs away. Root's are the agent's
// own looks at the GPU.
func (l *accessList) leftBehind(g *plan.GPU, own uint32, proof mps.Proof) string {
	if g.Tenancy.Policy == config.TenancyMultiUser {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range proof.States {
		d := access{g.UUID, s.UID}
		if s.UID != own && len(s.Clients) > 0 && !l.open[d] && proof.At.After(l.left[d]) {
			return stays(s)
		}
	}
	return ""
}
