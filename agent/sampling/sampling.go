// Package sampling looks at the GPUs once every interval (one second by default) and acts on what it
// sees. A sample names the processes on each GPU, whose they are and what they use. The site's rules
// are applied to it, and then everybody else reads it: the status, metrics, a job's record, and what
// decides whether a GPU takes jobs.
//
// Package usage has the readings and the mathematics, package rules has the rules. This package has
// what connects both with the node. Start at Loop.Round, which is the life of one sample.
package sampling

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/keepers"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// StaleAfter is how many intervals old a sample may be that is shown or that something rests on.
const StaleAfter = 3

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
	// StarterOf is the starter of the job that a process is of.
	StarterOf(pid int) (starter.Starter, bool)
	// ToBeHeld are the starters of the jobs that HTCondor is to hold.
	ToBeHeld() map[starter.Starter]bool
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
	// StartedBy says whether the parent of a process is fit.
	StartedBy(p process.ID, fit func(process.ID) bool) bool
	// Hiding are the processes, each with a directory, that do not see it.
	Hiding(dirs map[int]string) map[int]bool
}

// Users say where processes are; starter.Users is the real one. The kernel may take long to say that, so
// only Round asks Leaf and OfUser, in the background.
type Users interface {
	// Leaf is the cgroup of HTCondor's in which a process is. Errors are those of reading /proc.
	Leaf(pid int) (starter.Leaf, error)
	// OfUser says whether a process runs in a session or a service of a user, outside of all jobs.
	OfUser(pid int) bool
	// AccountOf is the account of a process, at once; none is known of root's and the agent's.
	AccountOf(pid int) (starter.Account, error)
}

// Daemons are the control daemons; mps.Daemons is the real one.
type Daemons interface {
	// QuickCheck is a look that does not wait for the daemon's answer: see mps.Daemon.QuickCheck.
	QuickCheck(u gpu.UUID, p mps.Checked) mps.QuickCheck
}

// Limits are the driver's, on the VRAM of jobs' cgroups; budget.Limits is the real one.
type Limits interface {
	// Unlimited is why jobs of a GPU have no limit, and since when; empty if nothing keeps them
	// from it.
	Unlimited(u gpu.UUID) (why string, at time.Time)
	// Outside says whether a job switched off the limit's controller, and looks which of its processes left the
	// cgroups that the driver limits: see budget.Limits.Outside.
	Outside(j jobs.Job, works bool) (off bool, look budget.Look)
	// Used is what the driver counts in a job's cgroup.
	Used(s starter.Starter, u gpu.UUID, now time.Time) gpu.Measured[gpu.Bytes]
}

// Punisher acts on jobs that break a rule; ending.Ender is the real one.
type Punisher interface {
	Punish(ctx context.Context, f rules.Finding)
	// EndOutside ends MPS clients that are of no job.
	EndOutside(ctx context.Context, u gpu.UUID, pids []int)
	// KillOutside kills processes of users that are no MPS clients and of no job.
	KillOutside(u gpu.UUID, all []process.ID)
}

// Events are kept for operators; history.Writer is the real one.
type Events interface {
	Event(e history.Event)
}

// Node is what a sample rests on.
type Node struct {
	Plan   *plan.Plan
	Config *config.Config
	// Daemons are the states of the control daemons.
	Daemons map[gpu.UUID]daemons.State
	// Modes are the compute modes in force on shared GPUs.
	Modes map[gpu.UUID]string
	// PrivilegeChecks: no other account than root's can change the limits of a control daemon.
	PrivilegeChecks bool
	// CgroupLimits: the driver can limit the VRAM of a cgroup.
	CgroupLimits bool
	// Quiet: no job runs, and the driver may be gone.
	Quiet bool
}

// Options are what a Loop works with.
type Options struct {
	// Source reads the GPUs; nil where nothing can, and then there are no samples.
	Source usage.Source
	// DCGM is the site's own dcgm-exporter; nil if there is none.
	DCGM usage.ActivitySource
	// Node is the node now.
	Node      func() Node
	Jobs      Jobs
	Processes Processes
	Users     Users
	Keepers   keepers.Looks
	Daemons   Daemons
	Limits    Limits
	Punisher  Punisher
	Events    Events
	Log       *slog.Logger
	// Proc is where proc(5) is mounted.
	Proc string
	// Published is called with each sample, Ended with one of an observed node, to look for jobs
	// that have ended: their records have their last seconds then.
	Published func(*usage.Snapshot)
	Ended     func()
	// Wake wakes the agent's loop.
	Wake func()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Patience is how long a round waits for each kind of question about processes, which tests set; see patience.
	Patience time.Duration
}

// Loop samples. Run and Watch are for one goroutine each; all other methods may be called by
// several at a time.
type Loop struct {
	Options
	sampler *usage.Sampler
	looks   looks
	keepers *keepers.Watch
	// What follows belongs to Round. Breaches are rules that jobs broke up to now; contended are
	// the GPUs whose jobs slowed each other down at the last sample.
	breaches  rules.Breaches
	contended contended
	// leaves are where processes of jobs are, ofUsers whether others are users' own.
	leaves  *deep.Questions[place]
	ofUsers *deep.Questions[bool]
}

// New returns a Loop that has taken no sample.
func New(o Options) *Loop {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Loop{Options: o, breaches: rules.Breaches{}, contended: contended{}}
	l.keepers = keepers.New(o.Keepers, func(p process.ID) bool { return l.Processes.Runs(p) })
	l.ofUsers = deep.NewQuestions(func(p process.ID) bool { return l.Users.OfUser(p.PID) })
	l.leaves = deep.NewQuestions(func(p process.ID) place {
		leaf, err := l.Users.Leaf(p.PID)
		return place{leaf, err}
	})
	if o.Source != nil {
		use := usage.Options{
			Source: o.Source, Site: site{l}, DCGM: o.DCGM, Interval: o.Node().Config.Usage.Interval, Proc: o.Proc, Now: o.Now,
		}
		if o.Keepers != nil {
			use.Opens = o.Keepers.Opens
		}
		l.sampler = usage.NewSampler(use)
	}
	return l
}

// Last is the last sample; empty before the first, and where nothing samples. It never changes.
func (l *Loop) Last() *usage.Snapshot {
	if l.sampler == nil {
		return &usage.Snapshot{}
	}
	return l.sampler.Snapshot()
}

// Run takes samples until the context ends. It has a goroutine of its own: a driver that hangs must
// not delay the health checks of control daemons, and these must not delay a sample.
func (l *Loop) Run(ctx context.Context) {
	if l.sampler == nil {
		return
	}
	l.looks.begin(l.Now())
	for ctx.Err() == nil {
		begin, interval := time.Now(), l.Node().Config.Usage.Interval
		l.Round(ctx)
		_ = backoff.Wait(ctx, interval-time.Since(begin)) // the loop looks at the context itself
	}
}

// Round is the life of one sample. Only Run or, in its place, a test calls it.
func (l *Loop) Round(ctx context.Context) {
	n := l.Node()

	// Look at the GPUs, find whose the processes are, divide what each GPU did among its jobs. The
	// interval may be another one since the configuration was read again.
	l.sampler.Pace(n.Config.Usage.Interval, l.Patience)
	l.sampler.Round(ctx)
	snap, now := l.sampler.Snapshot(), l.Now()
	if n.Plan.Observe {
		l.Ended()
	}

	// Judge the jobs by the site's rules.
	until := time.Now().Add(cmp.Or(l.Patience, n.Config.Usage.Interval/patience))
	ofUsers := l.ofUsers.Ask(strangers(n, snap))
	seen := l.seen(n, snap, now, until)
	var found []rules.Finding
	l.breaches, found = l.breaches.Judge(seen, rules.Rules{
		Budgets: n.Config.Budgets, Unattached: n.Config.Health.Unattached, AttachWithin: n.Config.Health.AttachWithin,
		Slack: n.Config.Usage.Interval / 2,
	}, now)
	for _, f := range l.withBlind(found) {
		l.Punisher.Punish(ctx, f)
	}
	ofUser := ofUsers(until)
	for i := range n.Plan.GPUs {
		g := &n.Plan.GPUs[i]
		clients, others := outside(n, snap, g, ofUser)
		if len(clients) > 0 {
			l.Punisher.EndOutside(ctx, g.UUID, clients)
		}
		if others = append(others, l.keepers.Outside(keptOn(g))...); len(others) > 0 {
			l.Punisher.KillOutside(g.UUID, others)
		}
	}
	l.looks.note(snap)

	// Publish what changed since the last sample.
	l.Published(snap)
	for _, e := range l.contended.events(snap) {
		l.Events.Event(e)
	}
	if hasNewServer(snap, n.Daemons) {
		l.Wake()
	}
}

// seen puts a sample to the running jobs, with what the driver and the processes themselves show until a time.
func (l *Loop) seen(n Node, snap *usage.Snapshot, now, until time.Time) []rules.Job {
	all, toBeHeld := rules.Sampled(snap, n.Plan, l.Jobs.Running()), l.Jobs.ToBeHeld()
	l.lookOutside(n, snap, all, until)
	lookForKeepers(l, n, snap)
	for i := range all {
		j := &all[i]
		if !j.Memory.Known { // NVML does not report the memory of all its processes
			if used := l.Limits.Used(j.Starter, j.GPU, now); used.Known {
				j.Memory = used
			}
		}
		j.Pipes = n.Config.Paths.PipeRoot() + "/" + string(j.GPU)
		j.ToBeHeld = toBeHeld[j.Starter]
	}
	l.keepers.Count(all, n.Config.Budgets)
	return all
}

// mostLooked bounds the processes of one sample whose lists of mounts are read.
const mostLooked = 8

// withBlind completes what the users read: which processes beside a control daemon do not see its pipe
// directory. That is looked up once for a breach.
func (l *Loop) withBlind(found []rules.Finding) []rules.Finding {
	dirs := map[int]string{}
	for _, f := range found {
		for _, pid := range f.Beside {
			if f.Code == api.CodeUnattached && f.First && len(dirs) < mostLooked {
				dirs[pid] = f.Pipes
			}
		}
	}
	if len(dirs) == 0 {
		return found
	}
	hiding := l.hiding(dirs)
	for i, f := range found {
		if f.Code == api.CodeUnattached && f.First {
			sees := func(pid int) bool { return !hiding[pid] }
			found[i] = f.WithBlind(slices.DeleteFunc(slices.Clone(f.Beside), sees))
		}
	}
	return found
}

// hiding are the processes that do not see their directory. The kernel needs seconds for a list of mounts that a job
// stacked on each other, and no sample waits for that: what is not known yet only completes a text.
func (l *Loop) hiding(dirs map[int]string) map[int]bool {
	look := deep.Begin("mounts "+l.Proc, func() map[int]bool { return l.Processes.Hiding(dirs) })
	found, _ := look.Within(cmp.Or(l.Patience, deep.Brief))
	return found
}

// limited says whether the driver limits the VRAM of the jobs on a GPU, as far as is known.
func (l *Loop) limited(n Node, u gpu.UUID) bool {
	why, _ := l.Limits.Unlimited(u)
	return n.CgroupLimits && why == ""
}

// hasNewServer says whether a sample shows an MPS server that no health check of its control daemon
// has listed: its state and its limits are not known yet.
func hasNewServer(snap *usage.Snapshot, states map[gpu.UUID]daemons.State) bool {
	for _, d := range snap.Devices {
		known := map[int]bool{}
		for _, s := range states[d.GPU].Checked.States {
			known[s.PID] = true
		}
		for _, p := range d.Processes.Value {
			if p.Owner == usage.OwnerServer && !known[p.PID] {
				return true
			}
		}
	}
	return false
}
