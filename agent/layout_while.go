package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mps"
)

// A change of a MIG layout gets changeLimit, and then time to go back. After
// changeAbandoned a call has hung past its own deadline: the loop goes on without it.
const (
	changeLimit     = 10 * time.Minute
	changeAbandoned = 25 * time.Minute
)

// changeEnd is what a change of a layout came to.
type changeEnd struct {
	out mig.Outcome
	err error
}

// changing changes the layout of one GPU, which takes minutes where a reset is
// needed. The loop waits, because what follows in the round rests on the new layout.
// Meanwhile it proves the control daemons of the other GPUs: they would close
// when their proofs are too old.
func (a *Agent) changing(ctx context.Context, u gpu.UUID, change func(context.Context, gpu.UUID) (mig.Outcome, error)) (mig.Outcome, error) {
	if end := a.layouts.hang[u]; end != nil {
		select {
		case <-end:
			delete(a.layouts.hang, u)
		default:
			return mig.Outcome{GPU: u, End: mig.Unchanged}, fmt.Errorf("a change of the MIG layout of %s hangs: see the kernel log; a driver that hangs needs a reboot", u)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	end := make(chan changeEnd, 1)
	go func() {
		out, err := change(ctx, u)
		end <- changeEnd{out, err}
	}()
	pace := time.NewTicker(pulse)
	defer pace.Stop()
	begun := time.Now()
	for proved := begun; ; {
		select {
		case e := <-end:
			return e.out, e.err
		case <-pace.C:
		}
		a.beat()
		if v := a.view.Load(); time.Since(proved) >= v.config.Health.Interval {
			a.proveOthers(ctx, v, u)
			proved = time.Now()
		}
		if time.Since(begun) >= changeAbandoned {
			if a.layouts.hang == nil {
				a.layouts.hang = map[gpu.UUID]chan changeEnd{}
			}
			a.layouts.hang[u] = end
			return mig.Outcome{GPU: u, End: mig.Unchanged}, fmt.Errorf("the change of the MIG layout of %s has not ended in %v and is left alone: see the kernel log; a driver that hangs needs a reboot", u, changeAbandoned)
		}
	}
}

// proveOthers renews the proofs of all control daemons but one GPU's.
func (a *Agent) proveOthers(ctx context.Context, old *view, but gpu.UUID) {
	var others []mps.Wanted
	for u, g := range old.guards {
		if old.physical(u) != but {
			others = append(others, g.wanted)
		}
	}
	v := *old
	v.guards = maps.Clone(old.guards)
	maps.Copy(v.guards, a.proveAll(context.WithoutCancel(ctx), old.guards, others, old.config.Health.Deadline))
	a.view.Store(&v)
}
