package layouts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
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

// unfinished waits with a change of a GPU on which an earlier one has not ended, since that is ended first. What it may
// take gets no new jobs, and must have none.
func (l *Layouts) unfinished(ctx context.Context, n *Node, u gpu.UUID) error {
	journal, err := mig.ReadJournal(l.executor.Dir, u)
	if err != nil || journal.Change == nil {
		return err
	}
	s, err := l.executor.State(ctx, u)
	if err != nil {
		return err
	}
	goes := takes(journal.Change, s)
	why, slot := n.unknown(l.jobs), l.jobs.Reserve(goes)
	if why == "" && slot != "" {
		why = slot + " has a job there"
	}
	if why == "" {
		return nil
	}
	l.ending.add(goes)
	return fmt.Errorf("the unfinished change of the MIG layout of %s waits: %s", u, why)
}

// endings are devices that take no new jobs until the next round, and why.
type endings map[gpu.UUID]string

func (e endings) add(names []gpu.UUID) {
	for _, u := range names {
		e[u] = jobs.IsLeaving
	}
}

// ofChanges adds GPUs whose change hangs or went neither on nor back, and says so: one that needs no change, or
// has no layout, has no other message. They, and those whose change hung, are to be looked at again.
func (e endings) ofChanges(n *Node, hang hanging, dir string, problem func(error)) (again []gpu.UUID) {
	for u := range hang {
		if err := hang.of(u); err != nil {
			problem(err)
			e.add(n.devices(u))
		}
		again = append(again, u)
	}
	for _, g := range n.Inventory.GPUs {
		journal, err := mig.ReadJournal(dir, g.UUID) // the change reports an error
		if !g.MIGCapable || err != nil || journal.Degraded == "" {
			continue
		}
		problem(fmt.Errorf("GPU %s takes no new jobs, because its MIG layout is neither the former nor the wanted one: %s; "+
			"gpuslot mig apply, or a restart of gpuslotd, tries again", g.UUID, journal.Degraded))
		e.add(n.devices(g.UUID))
		again = append(again, g.UUID)
	}
	return again
}

// hanging are the GPUs with a change that was left alone, which may end all the same.
type hanging map[gpu.UUID]chan changeEnd

// of says that a change of a GPU hangs; nil where none does, or it has ended.
func (h hanging) of(u gpu.UUID) error {
	if h[u] == nil {
		return nil
	}
	select {
	case <-h[u]:
		delete(h, u)
		return nil
	default:
		return fmt.Errorf("a change of the MIG layout of %s hangs: see the kernel log; "+
			"a driver that hangs needs a reboot", u)
	}
}

// devices are the names of a GPU and of all its MIG devices, those that it is to get included.
func (n *Node) devices(u gpu.UUID) []gpu.UUID {
	names := []gpu.UUID{u}
	if g, ok := n.Inventory.GPU(u); ok {
		for _, d := range g.MIGDevices {
			names = append(names, d.Names(u)...)
		}
	}
	for _, g := range n.Plan.GPUs {
		if g.Parent == u {
			names = append(names, g.UUID)
		}
	}
	return names
}

// takes are the names of the devices that a change may destroy on its way on or back: those that one of its layouts
// lacks, or the undivided GPU.
func takes(c *mig.Change, s gpu.MIGState) (names []gpu.UUID) {
	if !s.Enabled && (c.Wanted.Enabled || c.Former.Enabled) {
		names = append(names, s.UUID)
	}
	for _, i := range s.Instances {
		stays := i.Owner != gpu.Ours || c.Wanted.Layout.Contains(i.Place) && c.Former.Layout.Contains(i.Place)
		if !stays {
			names = append(names, s.Names(i)...)
		}
	}
	return names
}

// change changes the layout of one GPU, which takes minutes where a reset is needed. The
// loop waits, because what follows in the round rests on the new layout. Meanwhile the
// control daemons of the other GPUs are probed: they would close when their answers are
// too old.
func (l *Layouts) change(
	ctx context.Context, n *Node, u gpu.UUID, do func(context.Context, gpu.UUID) (mig.Outcome, error),
) (mig.Outcome, error) {
	unchanged := mig.Outcome{GPU: u, End: mig.Unchanged}
	if err := l.hang.of(u); err != nil {
		return unchanged, err
	}
	if err := l.unfinished(ctx, n, u); err != nil {
		return unchanged, err
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
			if blocked := (mig.BlockedError{}); errors.As(e.err, &blocked) {
				l.evict(u)
			}
			if e.out.End == mig.EndDegraded {
				l.ending.add(n.devices(u))
			}
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
			l.ending.add(n.devices(u))
			return unchanged, fmt.Errorf("the change of the MIG layout of %s has not ended in %v and is left alone: "+
				"see the kernel log; a driver that hangs needs a reboot", u, changeAbandoned)
		}
	}
}
