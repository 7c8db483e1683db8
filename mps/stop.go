package mps

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"golang.org/x/sys/unix"
)

// How long each way to end a daemon may take.
const (
	quitTimeout = 2 * time.Second // its own way, which a server that does not end blocks for good
	termTimeout = 2 * time.Second // SIGTERM
	killTimeout = 5 * time.Second // SIGKILL: the kernel's time
)

// Stop ends the control daemon of a GPU and its servers: by the daemon's own
// "quit", then by signals to all processes of its session. It returns when
// they are gone, and removes the pipe directory. Without a daemon it only does
// the latter, also under a lock that a job took.
func (p Processes) Stop(ctx context.Context, u gpu.UUID) error {
	d, err := p.daemon(u)
	if err != nil {
		return err
	}
	who, err := d.Alive()
	switch FaultOf(err) {
	case NotRunning, Foreign:
		return d.removeDirectory()
	case "", Suspended:
	default:
		return err
	}
	family := familyOf(who)
	if err == nil {
		d.quit(ctx)
	}
	if err := family.end(ctx); err != nil {
		return d.fault(Wedged, err, "process %d does not end: look for it in the kernel's log", who.PID)
	}
	return d.removeDirectory()
}

// quit asks the daemon to end. Neither exit code nor output of the command
// line say whether it will, so there is nothing to return.
func (d *Daemon) quit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	release, err := d.takeTurn(ctx)
	if err != nil {
		return
	}
	defer release()
	_, _, _ = d.run(ctx, "quit -t 1\n")
}

// removeDirectory removes the pipe directory of a daemon that is proven dead.
func (d *Daemon) removeDirectory() error {
	if err := os.RemoveAll(d.dir); err != nil {
		return d.fault(Unwritable, err, "it was stopped, but its pipe directory remains: %v: remove it", err)
	}
	return nil
}

// family is a daemon with the processes that it started.
type family struct {
	head process.ID
	// leads: the daemon leads a process group and session of its own, which tells its servers from other processes.
	leads bool
}

func familyOf(head process.ID) family {
	s, err := proc.Stat(head.PID)
	return family{head: head, leads: err == nil && s.ID == head && s.Group == head.PID && s.Session == head.PID}
}

// alive lists who is left of it. Zombies are gone.
func (f family) alive(in process.FS) []process.ID {
	if !f.leads {
		if in.Runs(f.head) {
			return []process.ID{f.head}
		}
		return nil
	}
	pids, err := in.PIDs()
	if err != nil {
		return []process.ID{f.head} // who is left is not known
	}
	var left []process.ID
	for _, pid := range pids {
		if !ofDaemon(in, pid) {
			continue // first: users can have the kernel take long over the rest
		}
		s, err := in.Stat(pid)
		switch {
		case errors.Is(err, process.ErrHeld) && !strings.HasPrefix(in.Comm(pid), "nvidia-cuda-mps"): // none of these
		case err != nil && !process.Gone(err):
			left = append(left, process.ID{PID: pid}) // it may be one; sendSignal signals none that it does not know
		case err == nil && s.Session == f.head.PID && s.Started >= f.head.Started && !s.Ended():
			left = append(left, s.ID) // an older process than the head is another's
		}
	}
	return left
}

// end waits for a quit to do its work, then sends SIGTERM, then SIGKILL.
func (f family) end(ctx context.Context) error {
	steps := []struct {
		signal unix.Signal
		wait   time.Duration
	}{
		{0, 200 * time.Millisecond},
		{unix.SIGTERM, termTimeout},
		{unix.SIGKILL, killTimeout},
	}
	for _, step := range steps {
		if f.endBy(ctx, step.signal, step.wait) {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("it survived SIGKILL")
}

// endBy signals everyone, newcomers too, until nobody is left or the time is over.
func (f family) endBy(ctx context.Context, signal unix.Signal, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	told := map[process.ID]bool{}
	for {
		left := f.alive(proc)
		if len(left) == 0 {
			return true
		}
		for _, p := range left {
			if signal != 0 && !told[p] {
				told[p] = true
				sendSignal(p, signal)
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookAgain):
		}
	}
}

// sendSignal signals this very process, no later one with its PID. A suspended one takes SIGTERM only after SIGCONT.
func sendSignal(p process.ID, signal unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // gone
	}
	defer func() { _ = unix.Close(fd) }()
	if s, err := proc.Stat(p.PID); err == nil && s.ID == p {
		_ = unix.PidfdSendSignal(fd, signal, nil, 0)
		_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	}
}
