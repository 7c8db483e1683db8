package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/usage"
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
	err := followKernelXIDs(ctx, path, func(x gpu.KernelXID) {
		for _, g := range a.view.Load().plan.GPUs {
			if g.PCI == x.PCI {
				a.troubles.Culprit(g.Physical(), x, time.Now())
				a.note(Event{Kind: EventCulprit, GPU: g.Physical(), Text: fmt.Sprintf("The kernel log names process %d (%s) for Xid %d.", x.PID, x.Process, x.XID)})
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
	var seen []Sight
	for _, c := range conditions {
		seen = append(seen, Sight{Condition: c, Server: v.guards[c.GPU].servers.active})
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
	saved := a.troubles.Saved()
	if len(saved) == 0 {
		return removeFile(troublesFile(p))
	}
	return writeJSON(troublesFile(p), saved)
}

func (a *Agent) recallTroubles(p config.Paths) error {
	b, err := os.ReadFile(troublesFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var saved []SavedTrouble
	if err == nil {
		err = json.Unmarshal(b, &saved)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w: look at the kernel log for Xid lines, then remove the file", troublesFile(p), err)
	}
	a.troubles.Restore(saved)
	return nil
}

// endLeftovers kills the clients that keep a server in FAULT. Their work on the
// GPU is gone, so a signal harms nobody else, and nobody else is served until
// they end.
func (a *Agent) endLeftovers(guards map[gpu.UUID]guard, now time.Time) {
	for u, g := range guards {
		for _, pid := range g.servers.leftovers(now) {
			err := a.killClient(pid, g.proof.At)
			if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
				a.log.Error("a client of a faulted server was not ended", "gpu", u, "pid", pid, "err", err)
				continue
			}
			a.note(Event{Kind: EventCulprit, GPU: u, By: byAgent, Text: fmt.Sprintf("Process %d kept its MPS server in FAULT and was killed.", pid)})
			a.log.Warn("a client that kept its server in FAULT was killed", "gpu", u, "pid", pid)
		}
	}
}

// killClient kills a process that a control daemon listed at a time, unless its
// PID has gone to another since.
func (a *Agent) killClient(pid int, listed time.Time) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer closeHandle(fd)
	latest, err := usage.TicksAt(listed)
	if err != nil {
		return err
	}
	p, err := a.books.proc.process(pid)
	if err != nil || p.Started > latest {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
