package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// Alarms tell what happens to the GPUs.
type Alarms interface {
	// Watch tells events until the context ends.
	Watch(ctx context.Context, tell func(gpu.Event)) error
	// Conditions asks each GPU how it is.
	Conditions(ctx context.Context, of []gpu.UUID) ([]gpu.Condition, error)
}

// watchAgain is the pause before events are listened to anew.
const watchAgain = 15 * time.Second

// listenToGPUs books every event of the GPUs as it comes.
func (a *Agent) listenToGPUs(ctx context.Context) {
	if a.alarms == nil {
		return
	}
	said := ""
	for ctx.Err() == nil {
		err := a.alarms.Watch(ctx, a.onEvent)
		// What keeps all GPUs away is told once, by who plans with them.
		if err != nil && err.Error() != said && a.view.Load().planned {
			said = err.Error()
			a.log.Warn("the GPUs' events are not told; their conditions are still asked for", "err", err)
		}
		pause(ctx, watchAgain)
	}
}

func (a *Agent) onEvent(e gpu.Event) {
	a.troubles.Event(e)
	v := a.troubles.Verdict(e.GPU, time.Now())
	a.noteFault(e, v)
	a.log.Warn("a GPU tells of an event", "gpu", e.GPU, "event", e.Kind, "xid", e.XID, "closes", v.Closed())
	nudge(a.wake)
}

// readKernelLog learns which processes XIDs name.
func (a *Agent) readKernelLog(ctx context.Context, path string) {
	if path == "" {
		return
	}
	err := faults.FollowKernelLog(ctx, path, func(x gpu.KernelXID) {
		for _, g := range a.view.Load().plan.GPUs {
			if g.PCI == x.PCI {
				a.troubles.Culprit(g.Physical(), x, time.Now())
				a.note(history.Event{Kind: history.EventCulprit, GPU: g.Physical(), Text: fmt.Sprintf("The kernel log names process %d (%s) for Xid %d.", x.PID, x.Process, x.XID)})
				break // its other MIG devices are the same GPU
			}
		}
	})
	if err != nil {
		a.log.Warn("XIDs do not name their processes", "err", err)
	}
}

// conditionsTimeout bounds one look at all GPUs.
const conditionsTimeout = 10 * time.Second

// seeConditions asks the GPUs how they are, and keeps what has to outlive the agent.
func (a *Agent) seeConditions(ctx context.Context, v *view) error {
	if a.alarms == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, conditionsTimeout)
	defer cancel()
	conditions, err := a.alarms.Conditions(ctx, v.physicals())
	if err != nil {
		return errors.Join(err, a.keepTroubles(v.config.Paths))
	}
	var seen []faults.Sight
	for _, c := range conditions {
		seen = append(seen, faults.Sight{Condition: c, Server: v.daemons[c.GPU].Servers.ActiveAt()})
	}
	a.troubles.Round(time.Now(), seen)
	return a.keepTroubles(v.config.Paths)
}

// troublesFile holds why events closed GPUs, for the next agent. It is gone
// after a reboot, which is what most of it asks for.
func troublesFile(p config.Paths) string { return filepath.Join(p.Run, "troubles.json") }

// keepTroubles is called by rounds, and before an operator hears that a GPU is open.
func (a *Agent) keepTroubles(p config.Paths) error {
	a.keeping.Lock() // what is kept last is what is so
	defer a.keeping.Unlock()
	if gpus := a.view.Load().physicals(); a.troubles.Lost(gpus) {
		return nil // the file that could not be read stays: it may close a GPU that is still closed
	}
	if err := a.troubles.Found(func() error { return store.Aside(troublesFile(p)) }); err != nil {
		return err
	}
	saved := a.troubles.Saved()
	if len(saved) == 0 {
		return store.Remove(troublesFile(p))
	}
	return store.WriteJSON(troublesFile(p), saved)
}

func (a *Agent) recallTroubles(p config.Paths) error {
	saved, err := store.Store[[]faults.Saved]{Path: troublesFile(p)}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i, s := range saved {
		if _, bad := gpu.ParseUUID(string(s.GPU)); bad != nil {
			err = fmt.Errorf("%s: entry %d names no GPU: %w", troublesFile(p), i, bad)
		}
	}
	if err != nil {
		err = fmt.Errorf("which GPUs were closed for faults is not known, so all are (%w): look at the kernel log for Xid lines; each gpuslotd closes all again until every GPU was opened", err)
		a.troubles.Lose(err.Error(), time.Now())
		return err
	}
	a.troubles.Restore(saved)
	return nil
}
