package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/dcgm"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/health"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/keepers"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/release"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
	"github.com/gpuslot/gpuslot/mps"
)

// newAgent makes the parts of an agent and connects them.
func newAgent(o Options, cfg config.Config) (*Agent, error) {
	a := &Agent{
		log: o.Log, configFile: o.ConfigFile, version: o.Build.Version, own: uint32(os.Geteuid()), pool: o.Pool,
		daemons: o.daemons, clients: o.clients, pipes: o.pipes, wake: make(chan struct{}, 1),
		history: history.NewWriter(cfg.Paths, o.Log), queue: waiting.NewQueue(o.Log),
	}
	a.view.Store(&view{config: cfg, next: cfg})
	a.heart = heart{manager: o.Manager, log: o.Log}
	if a.heart.manager == nil {
		a.heart.manager = nobody{}
	}
	a.hardware = hardware.New(hardware.Options{
		Source: o.Hardware, Expected: o.ExpectedGPUs, Mismatch: o.DriverMismatch, Log: a.log,
	})
	if a.daemons == nil {
		runner, err := o.Runner(cfg.Paths)
		if err != nil {
			return nil, err
		}
		real := mps.New(cfg.Paths.PipeRoot(), cfg.Paths.ControlDaemon, runner)
		a.daemons, a.clients, o.servers = real, real, real
	}
	if a.pipes == nil {
		a.pipes = access.PipeDirectories{Root: cfg.Paths.PipeRoot()}
	}
	probe := o.probe
	if probe == nil {
		probe = func(ctx context.Context, program string, device gpu.UUID) (mps.Capabilities, error) {
			return mps.Probe(ctx, program, cfg.Paths.Run, device, starter.AccountNamed(ctx, verify.Account).UID)
		}
	}
	sys, root := cmp.Or(o.sys, "/sys"), cmp.Or(o.proc, "/proc")
	a.cgroupRoot = cmp.Or(o.cgroupRoot, filepath.Join(sys, "fs/cgroup")) // where NVIDIA's driver looks, too
	a.proc = starter.Node{FS: process.FS{Root: root}, Own: a.own, Mount: a.cgroupRoot, Daemons: &starter.Daemons{}}
	reads.GroupBy(room.NewOwners(a.proc.Subuid).Of)
	a.jobs, a.access = jobs.New(a.proc), access.NewList(a.pipes, a.clients)
	a.prober = &capability.Prober{Probe: probe, MemoryLimits: o.MemoryLimits, Sys: sys, Log: o.Log}
	a.reader = status.New(status.Options{})
	a.metrics = metrics.New(o.Build, func() *status.Snapshot { return a.reader.Take(time.Now()) })
	a.links = ending.Links{Directory: cfg.Paths.Run, Holds: a.jobs.Holds}
	a.htcondor = htcondor{
		installed: o.Startd, settings: o.Settings, version: a.version, give: a.own == 0,
		rewritten: func() { a.startds.Rewritten() }, log: a.log,
	}
	a.startds = startd.New(startd.Options{
		HTCondor: o.Startd, Local: a.proc, Events: a.history, Log: a.log, Settle: a.settler.settle, Wanted: a.wanted,
	})
	a.modes = modes.New(modes.Options{
		File: modes.File(cfg.Paths), Hardware: o.Hardware, Jobs: a.jobs, Startds: a.startds, Node: a.proc, Log: a.log,
	})
	a.elastic = elastic.NewGroup(elastic.Options{Jobs: a.jobs, Slots: o.Startd, Events: a.history, Log: a.log})
	a.faults = faults.NewWatcher(faults.Options{
		Alarms: o.Alarms, File: faults.File(cfg.Paths), Events: a.history, Log: a.log,
		Node: func() faults.Node { return a.view.Load().faults() }, Changed: func() { nudge(a.wake) },
	})
	a.layouts = layouts.New(layouts.Options{
		Executor: o.MIG, Paths: cfg.Paths, Jobs: a.jobs, Daemons: layoutDaemons{a}, Metrics: a.metrics,
		Events: a.history, Evict: func(u gpu.UUID) { a.ender.Evict(u) }, Log: a.log, Beat: a.heart.beat,
	})
	a.nodes = isolation.New(isolation.Options{
		Kernel: o.DeviceNodes, Jobs: a.jobs, Processes: a.proc, HTCondor: starter.Users{Node: a.proc},
		Metrics: a.metrics, Log: a.log, Proc: root, Root: a.cgroupRoot, Arrived: isolation.Arrivals(a.proc),
	})
	a.limits = budget.NewLimits(budget.Options{
		Driver: o.Cgroups, Jobs: a.jobs, Processes: a.proc, Metrics: a.metrics, Log: a.log,
		Root: a.cgroupRoot, File: cgroupsFile(cfg.Paths),
	})
	a.closures = closures.NewTable(cfg.Paths.ClosuresFile())
	a.newKeeper(o.servers, cfg.Paths)
	a.newVerifier(o, cfg.Paths)
	a.newAdmission()
	err := a.newSampling(o.Usage, cfg.Usage)
	a.newQuiescer(cfg.Paths)
	a.connect()
	node, errPage := page.Handler(func() page.Node { return page.NodeOf(a.reader.Take(time.Now())) }, &a.lastHour)
	a.port = &metrics.Port{Metrics: a.metrics, Sockets: o.Ports, Log: a.log, Web: metrics.Web{
		Config: cfg.Metrics.WebConfig, Page: node, Ready: func() bool { return a.view.Load().planned },
	}}
	return a, errors.Join(err, errPage)
}

// cgroupsFile holds the limits that the driver was told to hold, for the next agent.
func cgroupsFile(p config.Paths) string { return filepath.Join(p.Run, "cgroups.json") }

// newKeeper makes what keeps control daemons and their static SM partitions.
func (a *Agent) newKeeper(servers Servers, p config.Paths) {
	sm, _ := a.daemons.(partitions.Daemons)
	a.partitions = partitions.New(partitions.Options{
		File: partitions.File(p), Daemons: sm, Jobs: a.jobs, Processes: a.proc, Log: a.log,
	})
	o := daemons.Options{
		Daemons: a.daemons, Checks: a.daemons, Clients: a.clients, Partitions: a.partitions,
		Jobs: a.jobs, Access: a.access, Owners: a.jobs, Processes: a.proc, Work: work{a}, Metrics: a.metrics,
		Events: a.history, Log: a.log, Own: a.own, Beat: a.heart.beat,
	}
	if servers != nil {
		o.Servers, o.Logs = servers, servers
	}
	a.keeper = daemons.New(o)
}

// newVerifier makes what verifies GPUs.
func (a *Agent) newVerifier(o Options, p config.Paths) {
	a.verifier = verify.New(verify.Options{
		Start: o.CUDA, Admission: &a.verified, Jobs: &a.verified, Servers: &a.verified, Log: a.log,
		File: verify.File(p), Own: a.own, Changed: func() { nudge(a.wake) },
		Node: func() verify.Node {
			v := a.view.Load()
			return verify.Node{
				Plan: &v.plan, First: v.planned && v.config.Health.Open == config.OpenAfterVerify,
				Deadline: config.ReplyDeadline,
				Daemon:   func(u gpu.UUID) process.ID { return v.daemons[u].Checked.Process() },
			}
		},
	})
}

// newAdmission makes what prepares jobs, and what ends their MPS clients.
func (a *Agent) newAdmission() {
	a.admission = admission.New(admission.Options{
		Node: func() admission.Node { return a.admitted.now() }, Jobs: a.jobs, Access: a.access,
		Partitions: a.partitions, Elastic: a.elastic, Startds: startd.Ads{Startds: a.startds}, Processes: a.proc,
		Events:  a.history,
		Metrics: a.metrics, Log: a.log, Sweep: a.sweeper.now, Ended: a.sweeper.shutOut,
		Changed: func() { nudge(a.wake) }, Entered: a.startds.Entered,
	})
	a.ender = ending.New(ending.Options{
		Clients: a.clients, Jobs: a.jobs, Holds: a.jobs, Processes: a.proc, Starters: a.proc, Reservations: a.limits,
		Users:  starter.Users{Node: a.proc},
		Events: a.history, Metrics: a.metrics, Log: a.log, Proc: a.proc.FS, Root: a.cgroupRoot, LinkHolds: a.links.Holding,
		MPS: func(u gpu.UUID) bool {
			g, _ := a.view.Load().plan.GPU(u) // a GPU without a plan has no control daemon
			return g.MPS()
		},
	})
}

// newSampling makes what samples the GPUs. Source is nil where nothing reads them.
func (a *Agent) newSampling(source usage.Source, c config.Usage) error {
	o := sampling.Options{
		Source: source, Node: func() sampling.Node { return a.sampled(a.view.Load()) }, Jobs: a.jobs, Processes: a.proc,
		Users: starter.Users{Node: a.proc}, Keepers: keepers.Finder{Node: a.proc}, Daemons: a.daemons,
		Limits: a.limits, Punisher: a.ender,
		Events: a.history, Log: a.log, Proc: a.proc.Root, Published: a.lastHour.AddSample, Ended: a.sweeper.now,
		Wake: func() { nudge(a.wake) },
	}
	if source != nil && c.DCGM != "" {
		exporter, err := dcgm.New(c.DCGM)
		if err != nil {
			return err
		}
		o.DCGM = exporter
	}
	a.sampling = sampling.New(o)
	return nil
}

// newQuiescer makes what takes the node out of service and back.
func (a *Agent) newQuiescer(p config.Paths) {
	service := release.Service{Options: release.Options{
		Jobs: a.jobs, Daemons: a.keeper, Limits: a.limits, Modes: a.modes, Hardware: a.hardware, Verifier: a.verifier,
		Processes: a.proc.FS, Log: a.log, Sweep: a.sweeper.now, Unwell: a.unwell,
		Node: func() release.Node {
			v := a.view.Load()
			return release.Node{Config: v.config, Plan: &v.plan, Ready: v.planned && v.rounds > 0, Closed: v.closed}
		},
	}}
	a.quiescer = &closures.Quiescer{
		Table: a.closures, Jobs: service, Driver: service, GPUs: service, Events: a.history, Log: a.log,
		Inventory: release.Inventory(p), Wake: func() { nudge(a.wake) },
	}
}

// connect fills in what connects the parts, which have all been made by now.
func (a *Agent) connect() {
	wake := func() { nudge(a.wake) }
	a.parts = health.Parts{
		Faults: a.faults, Samples: a.sampling, Unlisted: a.sampling, Processes: a.sampling,
		Verifications: a.verifier, Limits: a.limits, Daemons: a.daemons, Jobs: a.jobs,
	}
	a.admitted = admitted{node: &a.node, sampling: a.sampling, nodes: a.nodes, limits: a.limits}
	a.planner = planner{
		jobs: a.jobs, layouts: a.layouts, sampling: a.sampling, elastic: a.elastic, before: &a.before,
	}
	a.reporter = reporter{history: a.history, heart: &a.heart, before: &a.before, log: a.log}
	a.settler = settler{
		node: &a.node, jobs: a.jobs, proc: a.proc, access: a.access, ender: a.ender, metrics: a.metrics,
		sweep: a.sweeper.now, log: a.log,
	}
	a.sweeper = sweeper{
		jobs: a.jobs, access: a.access, sampling: a.sampling, history: a.history, ender: a.ender,
		admission: a.admission, limits: a.limits, nodes: a.nodes, log: a.log,
	}
	a.verified = verified{
		node: &a.node, reader: a.reader, proc: a.proc, admission: a.admission, jobs: a.jobs, clients: a.clients,
		ender: a.ender, sweep: a.sweeper.now,
	}
	n := &a.answers
	n.node, n.admission, n.jobs, n.ender, n.elastic = &a.node, a.admission, a.jobs, a.ender, a.elastic
	n.sampling, n.keeper, n.verifier, n.quiescer, n.queue = a.sampling, a.keeper, a.verifier, a.quiescer, a.queue
	n.operator = closures.Operator{Table: a.closures, Faults: a.faults, Events: a.history, Log: a.log}
	n.history, n.metrics, n.reader, n.log, n.sweep, n.wake = a.history, a.metrics, a.reader, a.log, a.sweeper.now, wake
	n.public.Look = a.reader.Look
	a.reader.Options = status.Options{
		Version: a.version, ConfigFile: a.configFile, Own: a.own, Closed: a.admission.Closed, Warnings: a.partWarnings,
		Node: func() status.Node { return a.lastRound(a.view.Load()) },
		Seen: func(n *status.Node, g *plan.GPU, now time.Time) gpu.Measured[bool] {
			return a.sampling.Sees(n.Health.(health.GPUs).Sampling, g, now)
		},
		Unlisted: func(n *status.Node, g *plan.GPU, now time.Time) sampling.Unlisted {
			return a.sampling.Unlisted(n.Health.(health.GPUs).Sampling, g.UUID, now)
		},
		Quiet: func() bool { return a.quiescer.Quiet }, Jobs: a.jobs, Callers: a.jobs, Closures: a.closures,
		Quiescer: a.quiescer, Faults: a.faults, Elastic: a.elastic, Partitions: a.partitions, Verifier: a.verifier,
		Access: a.access, Limits: a.limits, Samples: a.sampling, Startds: a.startds, Feedback: &a.answers.feedback,
	}
}

// partWarnings are what parts of the agent have to report, as complete sentences.
func (a *Agent) partWarnings() []string {
	var out []string
	if err := a.queue.Err(); err != nil {
		out = append(out, fmt.Sprintf("What waits in the pool is not known, so nothing on this node follows it, and "+
			"elastic GPUs change sides every elastic.stay: %v.", err))
	}
	if why := a.port.Down(); why != "" {
		out = append(out, fmt.Sprintf("Metrics are not served, and nothing alerts on this node: %s: see which process has "+
			"the port (ss -lptn); gpuslotd tries again.", why))
	}
	out = append(out, a.limits.Warnings()...)
	return append(out, a.nodes.Warnings()...)
}

// wanted is what the startds are to run now.
func (a *Agent) wanted() startd.Wanted {
	v := a.view.Load()
	return startd.Wanted{
		Observe: v.plan.Observe, Written: v.written, Policy: v.config.HTCondor.Changes,
		Compare: v.planned && !v.plan.Observe && v.config.HTCondor.Manage &&
			a.closures.Node().Phase != closures.Reverted,
		Node: a.htcondor.node(v), Overridden: v.overridden,
	}
}

// linkSupervisors writes what supervisors of jobs read. Without a plan the word of the agent
// before stands: what it promised holds while the GPUs cannot be read.
func (a *Agent) linkSupervisors() {
	err := a.links.Holding()
	if v := a.view.Load(); v.planned {
		err = errors.Join(a.links.Start(v.startWord(a.nodes.Enforced())), err)
	}
	if err != nil {
		a.log.Error("what supervisors read is not up to date", "err", err)
	}
}

// work is what runs on the GPUs, as agent/daemons sees it.
type work struct{ a *Agent }

// End lets MPS clients leave their server.
func (w work) End(ctx context.Context, u gpu.UUID, pids []int) {
	w.a.ender.EndClients(ctx, u, pids, starter.Starter{})
}

// None says for certain that nothing but MPS servers is on a GPU.
func (w work) None(u gpu.UUID, now time.Time) bool { return w.a.sampling.Unused(u, now) }

// layoutDaemons are the control daemons as agent/layouts sees them.
type layoutDaemons struct{ a *Agent }

// Stop stops the control daemon of a MIG device that goes.
func (l layoutDaemons) Stop(ctx context.Context, u gpu.UUID) error { return l.a.keeper.Stop(ctx, u) }

// Owns says whether a process is the control daemon of a device, or an idle server of it.
func (l layoutDaemons) Owns(u gpu.UUID, pid int) bool { return l.a.view.Load().daemons[u].Owns(pid) }

// Probe asks all control daemons but one GPU's for their limits.
func (l layoutDaemons) Probe(ctx context.Context, but gpu.UUID) {
	old := l.a.view.Load()
	var others []mps.Wanted
	for u, g := range old.daemons {
		if old.physical(u) != but {
			others = append(others, g.Wanted)
		}
	}
	v := *old
	v.daemons = maps.Clone(old.daemons)
	maps.Copy(v.daemons, l.a.keeper.Probe(context.WithoutCancel(ctx), old.daemons, others, config.ReplyDeadline))
	l.a.view.Store(&v)
}
