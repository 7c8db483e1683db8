package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Alarms report what happens to the GPUs; nvml has the real ones.
type Alarms interface {
	// Watch reports events until the context ends.
	Watch(ctx context.Context, report func(gpu.Event)) error
	// Conditions asks each GPU how it is.
	Conditions(ctx context.Context, of []gpu.UUID) ([]gpu.Condition, error)
}

// Events keep what happens; history.Writer is the real one.
type Events interface{ Event(e history.Event) }

// Options are what a Watcher works with.
type Options struct {
	// Alarms are nil where no GPU reports anything.
	Alarms Alarms
	// File keeps why GPUs are closed, for the next agent: see File.
	File   string
	Events Events
	Log    *slog.Logger
	Node   func() Node
	// Changed is called after an event.
	Changed func()
}

// Node is the plan in force, as far as a Watcher needs it.
type Node struct {
	// GPUs are the physical ones of the plan, PCI those of them with a known address.
	GPUs []gpu.UUID
	PCI  map[gpu.PCIBusID]gpu.UUID
	// Planned: a plan is in force.
	Planned bool
}

// Watcher is a Tracker that gets events and conditions from the GPUs and keeps its state in
// a file. Several goroutines may use it.
type Watcher struct {
	Tracker
	o       Options
	keeping sync.Mutex // File
}

// NewWatcher returns a watcher that has read no file.
func NewWatcher(o Options) *Watcher { return &Watcher{o: o} }

// watchAgain is the pause before the next attempt to watch events.
const watchAgain = 15 * time.Second

// Watch notes each event of the GPUs as it comes, until the context ends.
func (w *Watcher) Watch(ctx context.Context) {
	if w.o.Alarms == nil {
		return
	}
	said := ""
	for ctx.Err() == nil {
		err := w.o.Alarms.Watch(ctx, w.note)
		// Without a plan the reason concerns all GPUs, and the agent's round logs it.
		if err != nil && err.Error() != said && w.o.Node().Planned {
			said = err.Error()
			w.o.Log.Warn("the GPUs' events are not told; their conditions are still asked for", "err", err)
		}
		_ = backoff.Wait(ctx, watchAgain) // the loop looks at the context itself
	}
}

func (w *Watcher) note(e gpu.Event) {
	w.Event(e)
	v := w.Verdict(e.GPU, time.Now())
	w.o.Events.Event(history.Event{Time: e.Time, Kind: history.EventFault, GPU: e.GPU, Text: textOf(e, v)})
	w.o.Log.Warn("a GPU reports an event", "gpu", e.GPU, "event", e.Kind, "xid", e.XID, "closes", v.Closed())
	w.o.Changed()
}

// textOf is an event as a sentence.
func textOf(e gpu.Event, v Verdict) string {
	text := string(e.Kind)
	if e.Kind == gpu.EventXID {
		x := gpu.XIDByNumber(e.XID)
		text = x.String()
		if x.Class == gpu.XIDUnknown && !v.Closed() {
			text += ": not known to gpuslot, and it leaves the GPU open: " + x.Do
		}
	}
	switch {
	case !v.Closed():
		return text
	case strings.HasPrefix(v.Reason, text): // as with the event that closed the GPU
		return v.Reason
	}
	return text + ": " + v.Reason
}

// ReadKernelLog learns which processes Xids name, until the context ends. An empty path is
// not read.
func (w *Watcher) ReadKernelLog(ctx context.Context, path string) {
	if path == "" {
		return
	}
	err := FollowKernelLog(ctx, path, func(x gpu.KernelXID) {
		if u, ok := w.o.Node().PCI[x.PCI]; ok && x.PID > 0 {
			w.Named(u, x, time.Now())
			w.o.Events.Event(history.Event{Kind: history.EventFault, GPU: u,
				Text: fmt.Sprintf("The kernel log names process %d (%s) for Xid %d.", x.PID, x.Process, x.XID)})
		}
	})
	if err != nil {
		w.o.Log.Warn("XIDs do not name their processes", "err", err)
	}
}

// conditionsTimeout bounds one look at all GPUs.
const conditionsTimeout = 10 * time.Second

// Look asks GPUs how they are, and keeps what has to outlive the agent. Server is when a
// GPU's MPS server was last proven active.
func (w *Watcher) Look(ctx context.Context, gpus []gpu.UUID, server func(gpu.UUID) time.Time) error {
	if w.o.Alarms == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, conditionsTimeout)
	defer cancel()
	conditions, err := w.o.Alarms.Conditions(ctx, gpus)
	if err != nil {
		return errors.Join(err, w.Keep())
	}
	var seen []Sight
	for _, c := range conditions {
		seen = append(seen, Sight{Condition: c, Server: server(c.GPU)})
	}
	w.Round(time.Now(), seen)
	return w.Keep()
}

// File is where a node's faults are kept. It is gone after a reboot, which is what most of
// them ask for.
func File(p config.Paths) string { return filepath.Join(p.Run, "troubles.json") }

// Keep writes the file. It is called in each round, and before an operator hears that a GPU
// is open.
func (w *Watcher) Keep() error {
	w.keeping.Lock() // what is kept last is what is so
	defer w.keeping.Unlock()
	if w.Lost(w.o.Node().GPUs) {
		return nil // the file that could not be read stays: it may close a GPU that is still closed
	}
	if err := w.Found(func() error { return store.Aside(w.o.File) }); err != nil {
		return err
	}
	saved := w.Saved()
	if len(saved) == 0 {
		return store.Remove(w.o.File)
	}
	return store.WriteJSON(w.o.File, saved)
}

// Open opens a GPU although a fault closes it, and keeps that.
func (w *Watcher) Open(u gpu.UUID) error {
	w.Tracker.Open(u)
	return w.Keep()
}

// Read takes over what the agent before this one kept. A file that cannot be read closes all
// GPUs.
func (w *Watcher) Read() error {
	saved, err := store.Store[[]Saved]{Path: w.o.File}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i, s := range saved {
		if _, bad := gpu.ParseUUID(string(s.GPU)); bad != nil {
			err = fmt.Errorf("%s: entry %d names no GPU: %w", w.o.File, i, bad)
		}
	}
	if err != nil {
		err = fmt.Errorf("which GPUs were closed for faults is not known, so all are (%w): look at the kernel log for "+
			"Xid lines; each gpuslotd closes all again until every GPU was opened", err)
		w.Lose(err.Error(), time.Now())
		return err
	}
	w.Restore(saved)
	return nil
}
