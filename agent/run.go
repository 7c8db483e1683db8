package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/dcgm"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Run is the agent's life: until the context ends, or until it cannot go on.
// Control daemons live on after it, and so do the jobs. If the configuration it
// starts with is broken, there is no older plan to keep: it waits for a change
// (ErrAnew) where systemd would start it again, and elsewhere returns the error.
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
	quiet := closures.IsQuiet(cfg.Paths.ClosuresFile())
	if quiet {
		o = o.withoutDriver(cfg.Paths)
	}
	a, err := newAgent(o, cfg)
	if err != nil {
		return err
	}
	a.quiescer.Quiet = quiet
	a.recall(cfg.Paths)
	if o.WaitForHardware { // a driver that is still loading: HTCondor is to start with the right layout
		a.hardware.Await(ctx, cmp.Or(o.hardwareTimeout, hardwareTimeout), func(why string) {
			a.tell(a.manager.Status("waiting for the GPUs: " + why))
		})
	}
	a.apply(ctx, true)
	if why := a.view.Load().configError; why != "" {
		return brokenConfig{error: errors.New(why), Hardware: true}
	}
	if a.jobs.Unknown() != "" {
		a.startds.Ask(ctx)
	}
	return a.serve(ctx, o, cfg)
}

// newAgent is wiring.
func newAgent(o Options, cfg config.Config) (*Agent, error) {
	a := &Agent{
		log: o.Log, configFile: o.ConfigFile, version: o.Build.Version, own: uint32(os.Geteuid()),
		startd: o.Startd, settings: o.Settings, pool: o.Pool, manager: o.Manager, daemons: o.daemons, clients: o.clients,
		wake: make(chan struct{}, 1), history: history.NewWriter(cfg.Paths, o.Log),
	}
	a.hardware = hardware.New(hardware.Options{
		Source: o.Hardware, Expected: o.ExpectedGPUs, Mismatch: o.DriverMismatch, Log: a.log,
	})
	if a.manager == nil {
		a.manager = nobody{}
	}
	if a.daemons == nil {
		runner, err := o.Runner(cfg.Paths)
		if err != nil {
			return nil, err
		}
		real := mps.New(cfg.Paths.PipeRoot(), cfg.Paths.ControlDaemon, runner)
		a.daemons, a.clients, o.servers = real, real, real
	}
	if a.pipes = o.pipes; a.pipes == nil {
		a.pipes = access.PipeDirectories{Root: cfg.Paths.PipeRoot()}
	}
	sys := cmp.Or(o.sys, "/sys")
	probe := o.probe
	if probe == nil {
		probe = func(ctx context.Context, program string) (mps.Capabilities, error) {
			return mps.Probe(ctx, program, cfg.Paths.Run)
		}
	}
	a.prober = &capability.Prober{Probe: probe, MemoryLimits: o.MemoryLimits, Sys: sys, Log: o.Log}
	a.cgroupRoot = o.cgroupRoot
	if a.cgroupRoot == "" {
		a.cgroupRoot = filepath.Join(sys, "fs/cgroup") // where NVIDIA's driver looks, too
	}
	a.closures = closures.NewTable(cfg.Paths.ClosuresFile())
	a.quiescer = &closures.Quiescer{
		Table: a.closures, Jobs: quiesced{a}, Driver: quiesced{a}, GPUs: quiesced{a}, Events: a.history, Log: a.log,
		Inventory: quiescedInventory(cfg.Paths), Wake: func() { nudge(a.wake) },
	}
	root := o.proc
	if root == "" {
		root = "/proc"
	}
	a.proc = starter.Node{FS: process.FS{Root: root}, Own: a.own, Mount: a.cgroupRoot}
	a.jobs, a.access = jobs.New(a.proc), access.NewList(a.pipes, a.clients)
	a.startds = a.newStartds()
	a.modes = modes.New(modes.Options{
		File: modes.File(cfg.Paths), Hardware: o.Hardware, Jobs: a.jobs, Startds: a.startds, Node: a.proc, Log: a.log,
	})
	a.troubles = faults.NewWatcher(faults.Options{
		Alarms: o.Alarms, File: faults.File(cfg.Paths), Events: a.history, Log: a.log,
		Node: func() faults.Node { return a.view.Load().faults() }, Changed: func() { nudge(a.wake) },
	})
	a.queue = waiting.NewQueue(a.log)
	a.elastic = elastic.NewGroup(elastic.Options{Jobs: a.jobs, Slots: a.startd, Events: a.history, Log: a.log})
	a.verifier = a.newVerifier(o, cfg.Paths)
	a.metrics = metrics.New(o.Build, func() *status.Snapshot { return a.reader.Take(time.Now()) })
	a.layouts = layouts.New(layouts.Options{
		Executor: o.MIG, Paths: cfg.Paths, Jobs: a.jobs, Daemons: layoutDaemons{a}, Metrics: a.metrics,
		Events: a.history, Log: a.log, Beat: a.beat,
	})
	a.newKeeper(o.servers, cfg.Paths)
	a.nodes = isolation.New(isolation.Options{
		Wall: o.DeviceNodes, Jobs: a.jobs, Processes: a.proc, HTCondor: a.proc, Metrics: a.metrics, Log: a.log,
		Proc: root, Root: a.cgroupRoot,
	})
	a.limits = budget.NewLimits(budget.Options{
		Driver: o.Cgroups, Jobs: a.jobs, Processes: a.proc, Cgroups: a.proc, Metrics: a.metrics, Log: a.log,
		Root: a.cgroupRoot, File: cgroupsFile(cfg.Paths),
	})
	a.admission, a.ender = a.newAdmission(), a.newEnder()
	a.view.Store(&view{config: cfg, next: cfg})
	err := a.newSampling(o.Usage, cfg.Usage, root)
	a.reader = a.newReader()
	a.public.Look = a.reader.Look
	node, errPage := page.Handler(func() page.Node { return page.NodeOf(a.reader.Take(time.Now())) }, &a.lastHour)
	a.port = &metrics.Port{Metrics: a.metrics, Sockets: o.Ports, Log: a.log, Web: metrics.Web{
		Config: cfg.Metrics.WebConfig, Page: node, Ready: func() bool { return a.view.Load().planned },
	}}
	return a, errors.Join(err, errPage)
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
		if by, ok := process.LockHolder(f); ok && errors.Is(err, unix.EWOULDBLOCK) {
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
func (a *Agent) recall(p config.Paths) {
	switch old, err := plan.Read(p.PlanFile()); {
	case err == nil:
		a.recalled = old
		a.keeper.Recall(old.ControlDaemons())
	case !errors.Is(err, fs.ErrNotExist):
		a.lostPlan = err
		a.log.Error("the plan of the gpuslotd before this one is not known", "err", err)
	}
	a.jobs.Await((&starter.Arrivals{}).New(a.proc, time.Now()))
	if err := a.access.Read(); err != nil {
		a.log.Error("who has access to which GPU is not known", "err", err)
	}
	if err := a.troubles.Read(); err != nil {
		a.log.Error("all GPUs are closed", "err", err)
	}
	if err := a.layouts.Read(); err != nil {
		a.log.Error("how MIG layouts followed the work is not known", "err", err)
	}
	if err := a.closures.Read(); err != nil {
		a.log.Error("which GPUs are held closed is not known; all are", "err", err)
	}
	if err := a.limits.Read(); err != nil {
		a.log.Error("which cgroups have limits is not known", "err", err)
	}
	if err := a.partitions.Read(); err != nil {
		a.log.Error("static SM partitions are not known", "err", err)
	}
	if err := a.verifier.Read(); err != nil {
		a.log.Error("what was verified is not known", "err", err)
	}
}

// nobody is a Manager where there is none.
type nobody struct{}

func (nobody) Ready() error        { return nil }
func (nobody) Reloading() error    { return nil }
func (nobody) Status(string) error { return nil }
func (nobody) Alive() error        { return nil }

// hardwareTimeout bounds the wait before the agent says it is ready, and with
// it the start of condor.service.
const hardwareTimeout = 60 * time.Second

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
	srv := a.newServer(a.proc, filepath.Join(cfg.Paths.Libexec, hookProgram))
	wg.Go(func() {
		if err := srv.Serve(ctx, listener); err != nil {
			cancel(err)
		}
	})
	wg.Go(func() { a.startds.Run(ctx) })
	wg.Go(func() { a.sweep(ctx) })
	wg.Go(func() { a.listenToPool(ctx) })
	wg.Go(func() { a.ping(ctx) })
	wg.Go(func() { a.history.Run(ctx) })
	wg.Go(func() { a.sampling.Run(ctx) })
	wg.Go(func() { a.sampling.Watch(ctx) })
	wg.Go(func() { a.discoverJobs(ctx) })
	wg.Go(func() { a.limits.Run(ctx, a.limitConditions) })
	wg.Go(func() {
		a.nodes.Run(ctx, func() isolation.Conditions { return a.view.Load().isolation() }, a.tellSupervisors)
	})
	wg.Go(func() { a.verifier.Run(ctx) })
	wg.Go(func() { a.quiescer.Resume(ctx) })
	wg.Go(func() { a.troubles.Watch(ctx) })
	wg.Go(func() { a.troubles.ReadKernelLog(ctx, o.KernelLog) })
	defer a.ender.Wait()
	wg.Go(func() { a.port.Serve(ctx, o.Metrics, cfg.Metrics.Listen) })
	a.tell(a.manager.Ready())
	a.history.Event(
		history.Event{Kind: history.EventStart, By: history.ByAgent, Text: "gpuslotd " + a.version + " started."},
	)
	a.log.Info("gpuslotd serves", "version", a.version, "socket", listener.Addr().String())
	anew := a.loop(ctx, o.Reload)
	cancel(nil)
	if anew {
		a.log.Warn("gpuslotd starts anew")
		return ErrAnew
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
	path := o.Socket
	if path == "" {
		path = filepath.Join(cfg.Paths.Run, "agent.sock")
	}
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

// sweepEvery is how long a finished job's access to its GPU may outlive it.
const sweepEvery = 5 * time.Second

// sweep drops slots whose jobs have ended.
func (a *Agent) sweep(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	mapping := dcgm.Mapping{Log: a.log}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			// On an observed node each sample does: nobody waits for its GPU, and the record of a job
			// has its last seconds then.
			v := a.view.Load()
			if !v.plan.Observe || !a.sampling.Fresh(time.Now()) {
				a.sweepNow()
			}
			if v.planned {
				mapping.Update(v.config.Usage.DCGMJobMapping, &v.plan, a.jobs.Running())
			}
		}
	}
}

// sweepNow drops the jobs whose starters have ended, shuts out the accounts that need no
// access any more, and records what ended.
func (a *Agent) sweepNow() {
	ended := a.jobs.DropEnded()
	err := a.access.Sweep(a.jobs.Needs)
	a.finish(ended)
	if err != nil {
		a.log.Error("a pipe directory stays open", "err", err)
	}
}

// finish records the end of jobs. It waits for nothing.
func (a *Agent) finish(ended []jobs.Job) {
	now := time.Now()
	for _, r := range ended {
		a.log.Info("a job ended", "slot", r.Starter.Slot, "job", r.ID, "gpu", r.GPU)
		rec := a.sampling.Record(r, now)
		a.history.Record(rec)
		a.history.Event(history.Event{
			Time: now, Kind: history.EventEnd, GPU: r.GPU, Slot: condor.SlotName(r.Starter.Slot), Job: r.ID,
			Text: history.EndText(rec),
		})
		a.ender.Forget(r.Starter)
		a.admission.Forget(r.Starter)
		a.limits.Wake()
		a.nodes.Wake()
	}
}

// tell logs what the service manager could not be told.
func (a *Agent) tell(err error) {
	if err != nil {
		a.log.Warn("service manager not told", "err", err)
	}
}

// hookProgram is what the generated configuration names as the hook.
const hookProgram = "gpuslot-condor"
