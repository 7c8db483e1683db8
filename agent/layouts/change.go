package layouts

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// A change of a MIG layout gets changeLimit, and then time to go back. After changeAbandoned
// a call has hung past its own deadline: the loop goes on without it.
const (
	changeLimit     = 10 * time.Minute
	changeAbandoned = 25 * time.Minute
	// changePace is the pace of the loop's life signs during a change.
	changePace = time.Second
)

// changeEnd is what a change of a layout came to.
type changeEnd struct {
	out mig.Outcome
	err error
}

// change changes the layout of one GPU, which takes minutes where a reset is needed. The
// loop waits, because what follows in the round rests on the new layout. Meanwhile the
// control daemons of the other GPUs are probed: they would close when their answers are
// too old.
func (l *Layouts) change(
	ctx context.Context, n *Node, u gpu.UUID, do func(context.Context, gpu.UUID) (mig.Outcome, error),
) (mig.Outcome, error) {
	unchanged := mig.Outcome{GPU: u, End: mig.Unchanged}
	if end := l.hang[u]; end != nil {
		select {
		case <-end:
			delete(l.hang, u)
		default:
			return unchanged, fmt.Errorf("a change of the MIG layout of %s hangs: "+
				"see the kernel log; a driver that hangs needs a reboot", u)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	end := make(chan changeEnd, 1)
	go func() {
		out, err := do(ctx, u)
		end <- changeEnd{out, err}
	}()
	pace := time.NewTicker(changePace)
	defer pace.Stop()
	begun := time.Now()
	for probed := begun; ; {
		select {
		case e := <-end:
			return e.out, e.err
		case <-pace.C:
		}
		l.beat()
		if time.Since(probed) >= n.Config.Health.Interval {
			l.daemons.Probe(ctx, u)
			probed = time.Now()
		}
		if time.Since(begun) >= changeAbandoned {
			l.hang[u] = end
			return unchanged, fmt.Errorf("the change of the MIG layout of %s has not ended in %v and is left alone: "+
				"see the kernel log; a driver that hangs needs a reboot", u, changeAbandoned)
		}
	}
}
