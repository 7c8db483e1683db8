package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/observe"
	"github.com/gpuslot/gpuslot/agent/release"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/agent/threads"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
)

// ErrStartAgain asks for a new process: a library of the driver that was loaded once
// stays in a process until it ends, so that a driver is let go, and another one
// taken up, only so.
var ErrStartAgain = errors.New("gpuslotd has to start again")

// Run is the agent's life: until the context ends, or until it cannot go on.
// Control daemons live on after it, and so do the jobs. If the configuration it
// starts with is broken, there is no older plan to keep: it waits for a change
// (ErrStartAgain) where systemd would start it again, and elsewhere returns the error.
func Run(ctx context.Context, o Options) error {
	was, _ := os.Stat(o.ConfigFile) // without it any file is a change
	err := run(ctx, o)
	var broken brokenConfig
	if o.Listener == nil || !errors.As(err, &broken) {
		return err
	}
	return awaitConfig(ctx, o, was, broken)
}

func run(ctx context.Context, o Options) error {
	cfg, err := config.Load(o.ConfigFile)
	if err != nil {
		return brokenConfig{error: err}
	}
	unlock, err := lockRun(cfg.Paths)
	if err != nil {
		return err
	}
	defer unlock()
	defer threads.New().Start()()
	quiet := closures.IsQuiet(cfg.Paths.ClosuresFile())
	if quiet {
		o = o.withoutDriver(cfg.Paths)
	}
	a, err := newAgent(o, cfg)
	if err != nil {
		return err
	}
	a.quiescer.Quiet = quiet
	if err := a.recall(ctx, cfg.Paths); err != nil {
		return err
	}
	if o.WaitForHardware { // a driver that is still loading: HTCondor is to start with the right layout
		a.hardware.Await(ctx, cmp.Or(o.hardwareTimeout, hardwareTimeout), func(why string) {
			a.heart.tell(a.heart.manager.Status("waiting for the GPUs: " + why))
		})
	}
	a.apply(ctx, true)
	if why := a.view.Load().configError; why != "" {
		return brokenConfig{error: errors.New(why), Hardware: true}
	}
	if a.jobs.Unknown() != "" {
		first, cancel := context.WithTimeout(ctx, firstAskTimeout)
		a.startds.Ask(first)
		cancel()
	}
	return a.serve(ctx, o, cfg)
}

// Release undoes what gpuslot did to the node: it stops the control daemons,
// removes the MIG devices that it made and restores MIG and compute modes, and
// removes the generated files. The agent must not run. With jobs on its GPUs it
// refuses, unless forced: their MPS servers end with the daemons; MIG devices that
// jobs have, or may have, stay in any case.
func Release(ctx context.Context, o Options, force bool) error {
	cfg, err := config.Load(o.ConfigFile)
	if err != nil {
		return err
	}
	unlock, err := lockRun(cfg.Paths)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := newAgent(o, cfg)
	if err != nil {
		return err
	}
	if err := a.recall(ctx, cfg.Paths); err != nil {
		return err
	}
	if err := release.Idle(ctx, a.jobs, a.startds.Ask); err != nil && !force { // it also finds out which jobs have what
		return err
	}
	inv, _, _ := a.hardware.Inventory(ctx) // what it lacks counts as used by the jobs that have MIG devices
	if err := a.keeper.StopAll(ctx); err != nil {
		return err
	}
	return errors.Join(
		a.limits.Release(ctx),
		a.nodes.OpenOutside(),
		a.layouts.Leave(ctx, a.planner.node(a.view.Load(), inv)),
		a.modes.Restore(ctx, a.hardware.Inventory),
		release.RemoveGenerated(cfg),
	)
}

// lockRun keeps a second agent, or a --release, from the same directory.
func lockRun(p config.Paths) (unlock func(), err error) {
	path := filepath.Join(p.Run, "agent.lock")
	if err := os.MkdirAll(p.Run, 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if by, ok := process.LockHolder(f); ok {
			return nil, fmt.Errorf("another gpuslotd uses %s: systemctl stop gpuslotd.socket gpuslotd.service ends one of "+
				"systemd's; %s", p.Run, by.Advice())
		}
		return nil, fmt.Errorf("another gpuslotd uses %s: stop it first: systemctl stop gpuslotd.socket gpuslotd.service "+
			"(%w)", p.Run, err)
	}
	return func() { _ = f.Close() }, nil
}

// recall takes over what an earlier agent left: its plan's control daemons,
// the running starters, and the open pipe directories.
func (a *Agent) recall(ctx context.Context, p config.Paths) error {
	if condor := starter.AccountNamed(ctx, "condor"); a.own == 0 && condor.Known {
		reads.Trust(condor.UID) // HTCondor's daemons act as it
	}
	_, _, _ = starter.Users{Node: a.proc}.OfDaemons() // or as another one, which this trusts
	if err := a.before.read(p); err != nil {
		a.log.Error("the plan of the gpuslotd before this one is not known", "err", err)
	}
	v := a.view.Load() // these until all GPUs have been read
	v.instances = isolation.InstancesOnly(layouts.Isolated(a.before.plan))
	v.forJobs = layouts.ForJobs(a.before.plan, gpu.Inventory{}, nil)
	a.keeper.Recall(a.before.plan.ControlDaemons())
	running, err := (&starter.Arrivals{}).New(a.proc, time.Now())
	if err != nil {
		return fmt.Errorf("find the jobs that run: %w", err)
	}
	a.jobs.Await(running)
	for _, r := range []struct {
		read func() error
		lost string
	}{
		{a.access.Read, "who has access to which GPU is not known"},
		{a.faults.Read, "all GPUs are closed"},
		{a.layouts.Read, "how MIG layouts followed the work is not known"},
		{a.closures.Read, "which GPUs are held closed is not known; all are"},
		{a.limits.Read, "which cgroups have limits is not known"},
		{a.partitions.Read, "static SM partitions are not known"},
		{a.verifier.Read, "what was verified is not known"},
	} {
		if err := r.read(); err != nil {
			a.log.Error(r.lost, "err", err)
		}
	}
	return nil
}

// nobody is a Manager where there is none.
type nobody struct{}

func (nobody) Ready() error        { return nil }
func (nobody) Reloading() error    { return nil }
func (nobody) Status(string) error { return nil }
func (nobody) Alive() error        { return nil }

// hardwareTimeout bounds the wait before the agent says it is ready, and with it the start of condor.service.
const hardwareTimeout = 60 * time.Second

// firstAskTimeout bounds what the startds are asked before the socket is served.
const firstAskTimeout = 10 * time.Second

// serve runs everything until the first part fails or the context ends.
func (a *Agent) serve(ctx context.Context, o Options, cfg config.Config) error {
	listener, err := a.listen(o, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	srv := a.answers.server(a.proc,
		filepath.Join(cfg.Paths.Libexec, "gpuslot-start"), filepath.Join(cfg.Paths.Libexec, "gpuslot-condor"))
	wg.Go(func() {
		if err := srv.Serve(ctx, listener); err != nil {
			cancel(err)
		}
	})
	wg.Go(func() { a.startds.Run(ctx) })
	wg.Go(func() { a.sweeper.run(ctx, &a.node) })
	if a.pool != nil {
		interest := func() (*waiting.Interest, time.Duration) { return a.view.Load().interest() }
		wg.Go(func() {
			a.queue.Run(ctx, a.pool, interest, func(d condor.Demand, err error) {
				a.layouts.Answered(d, err)
				nudge(a.wake)
			})
		})
	}
	wg.Go(func() { a.heart.ping(ctx) })
	wg.Go(func() { a.history.Run(ctx) })
	wg.Go(func() { a.sampling.Run(ctx) })
	wg.Go(func() { a.sampling.Watch(ctx) })
	jobs := observe.Jobs{
		Node: a.proc,
		Observed: func() (bool, time.Duration) {
			v := a.view.Load()
			return v.plan.Observe, v.config.Usage.Interval
		},
		Discover: func(found []starter.Starter) {
			a.jobs.Discover(found)
			if len(found) > 0 {
				a.startds.Entered()
			}
		},
	}
	wg.Go(func() { jobs.Run(ctx) })
	wg.Go(func() { a.limits.Run(ctx, func() budget.Conditions { return a.view.Load().limits() }) })
	wg.Go(func() {
		a.nodes.Run(ctx, func() isolation.Conditions { return a.view.Load().isolation() }, a.linkSupervisors)
	})
	wg.Go(func() {
		planned := func() bool { v := a.view.Load(); return v.planned && !v.plan.Observe }
		starter.Leftovers{Node: a.proc, Log: a.log}.Run(ctx, planned)
	})
	wg.Go(func() { a.verifier.Run(ctx) })
	wg.Go(func() { a.quiescer.Resume(ctx) })
	wg.Go(func() { a.faults.Watch(ctx) })
	wg.Go(func() { a.faults.ReadKernelLog(ctx, o.KernelLog) })
	defer a.ender.Wait()
	wg.Go(func() { a.port.Serve(ctx, o.Metrics, cfg.Metrics.Listen) })
	a.heart.tell(a.heart.manager.Ready())
	a.history.Event(
		history.Event{Kind: history.EventStart, By: history.ByAgent, Text: "gpuslotd " + a.version + " started."},
	)
	a.log.Info("gpuslotd serves", "version", a.version, "socket", listener.Addr().String())
	again := a.loop(ctx, o.Reload)
	cancel(nil)
	if again {
		a.log.Warn("gpuslotd starts again")
		return ErrStartAgain
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// listen takes the service manager's socket or makes one.
func (a *Agent) listen(o Options, cfg config.Config) (*net.UnixListener, error) {
	if o.Listener != nil {
		return o.Listener, nil
	}
	path := cmp.Or(o.Socket, filepath.Join(cfg.Paths.Run, "agent.sock"))
	// The lock says that no other agent lives here: what remains is stale.
	if err := store.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// Everybody may ask: the kernel says who does.
	return l, os.Chmod(path, 0o666)
}

// withoutDriver are the options of an agent that touches no GPU.
func (o Options) withoutDriver(p config.Paths) Options {
	o.Hardware, o.WaitForHardware, o.ExpectedGPUs = hardware.Recorded{Path: release.Inventory(p)}, false, 0
	o.Usage, o.Alarms, o.CUDA, o.Cgroups, o.MemoryLimits, o.DriverMismatch = nil, nil, nil, nil, nil, nil
	o.MIG.Hardware = nil
	return o
}
