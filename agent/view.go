package agent

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// view is the agent's whole knowledge after one round of the loop. It is never
// changed once published: readers need no lock.
type view struct {
	// config is the one that the plan in force was made from; next is the last
	// that could be read, pending that no plan was tried from it yet, because
	// the hardware could not be read.
	config, next config.Config
	pending      bool
	plan         plan.Plan
	// planned: an inventory was read and a plan made from it.
	planned bool
	// applied is when the plan in force was first applied.
	applied time.Time
	// configError is why the last reload was rejected; empty if it was not.
	configError string
	// configRead and configOK are the last attempt to read the configuration.
	configRead time.Time
	configOK   bool
	// closed closes every GPU, with the reason; empty if nothing does.
	closed string
	// daemons are the states of the control daemons.
	daemons map[gpu.UUID]daemons.State
	// present is false for a GPU of the plan that the last inventory lacks.
	present map[gpu.UUID]bool
	// instances are those that the node was last seen to have, forJobs the GPUs that no user opens outside of jobs.
	instances isolation.Instances
	forJobs   []gpu.UUID
	// unruled: the nodes of GPUs that are to be divided could not be closed yet, and it is not known whether they can be.
	unruled bool
	// accounts are those of tenancy "common:<user>".
	accounts map[string]starter.Account
	// reasons say what the agent saw that closed GPUs when the round ended, held
	// which GPUs their owners closed besides.
	reasons map[gpu.UUID]string
	held    map[gpu.UUID]bool
	// modes tell each shared GPU's compute mode in force.
	modes map[gpu.UUID]string
	// can is what the installed control daemon, driver and kernel can do.
	can capability.Set
	// condor is HTCondor's version; zero if unknown.
	condor condor.Version
	// settings are those of HTCondor, nil while unknown; generated is what the agent
	// wrote for it, and overridden what the site's settings take away from that.
	settings   condor.Settings
	generated  []byte
	overridden []condor.Override
	// repartition is what was decided last of MIG layouts that follow the work that
	// waits; below are the profiles whose jobs devices leave to those meanwhile.
	repartition []api.StatusRepartition
	below       map[gpu.UUID]plan.GPU
	// laidOut says of the GPUs whose MIG layout the agent makes whether they have
	// it; nil while the GPUs cannot be read.
	laidOut map[gpu.UUID]bool
	// written: HTCondor's files are as the plan wants them.
	written bool
	// problems are complete sentences, for status and log.
	problems []string
	// rounds counts the loop's rounds, took is how long the last one took.
	rounds  uint64
	took    time.Duration
	roundOK bool
}

// host is the node's name: the plan's, or the kernel's where there is no plan yet.
func (v *view) host() string {
	if v.planned {
		return v.plan.Host.Name
	}
	name, _ := os.Hostname() // empty is as good
	return name
}

// physical is the GPU of which a MIG device of the plan is a part; u itself
// otherwise.
func (v *view) physical(u gpu.UUID) gpu.UUID {
	if g, ok := v.plan.Find(u); ok {
		return g.Physical()
	}
	return u
}

// physicals are the GPUs of the plan, each once.
func (v *view) physicals() []gpu.UUID {
	var all []gpu.UUID
	for _, g := range v.plan.MIG {
		all = append(all, g.UUID) // those without a device too
	}
	for _, g := range v.plan.GPUs {
		if u := g.Physical(); !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	return all
}

// faults is the plan as agent/faults sees it.
func (v *view) faults() faults.Node {
	n := faults.Node{GPUs: v.physicals(), PCI: map[gpu.PCIBusID]gpu.UUID{}, Planned: v.planned}
	for _, g := range v.plan.GPUs {
		n.PCI[g.PCI] = g.Physical() // its MIG devices are the same GPU
	}
	return n
}

// serverActive is when a GPU's MPS server was last proven active.
func (v *view) serverActive(u gpu.UUID) time.Time { return v.daemons[u].Servers.ActiveAt() }

// privilegeChecks: no other account than root's can change the limits of a control daemon.
func (v *view) privilegeChecks() bool {
	checks := v.can.MPS.PrivilegeChecks
	return v.can.Tried && checks.Known && checks.Has
}

// condorStale says when to ask for HTCondor's version again: while it is not
// known or not good enough, and now and then, because it is upgraded some day.
func (v *view) condorStale() bool {
	const rounds = 40 // ten minutes by default
	_, err := condor.Check(v.condor)
	return v.condor == (condor.Version{}) || err != nil || v.rounds%rounds == 0
}

func (v *view) condorText() string {
	if v.condor == (condor.Version{}) {
		return ""
	}
	return v.condor.String()
}

// problem notes what went wrong in this round.
func (v *view) problem(errs ...error) {
	for _, err := range errs {
		if err != nil {
			v.problems = append(v.problems, err.Error())
		}
	}
}

// readConfig reads gpuslot.toml. One that cannot be used leaves the last in force.
func (v *view) readConfig(file string, now time.Time) {
	v.configRead = now
	read, err := config.Load(file)
	old := v.config.Paths
	if err == nil && old.Run != "" && (old.Run != read.Paths.Run || old.State != read.Paths.State) {
		// Sockets, control daemons and journals are below these directories.
		err = errors.New("paths.run and paths.state cannot change while gpuslotd runs: stop it, run gpuslotd --release " +
			"with the old file, then start it with the new one")
	}
	if err != nil {
		v.reject(err)
		return
	}
	v.next, v.pending, v.configOK, v.configError = read, true, true, ""
}

// reject keeps what is in force.
func (v *view) reject(err error) {
	v.configOK, v.configError = false, err.Error()
	v.next, v.pending = v.config, false
}

// noPlan says why there is no plan at all.
func (v *view) noPlan() string { return "no GPU of this node takes jobs yet: " + v.closed }

// noStart is why no job may start; empty if nothing keeps all of them.
func (v *view) noStart() string {
	if v.planned {
		return ""
	}
	return v.noPlan()
}

// wantsToObserve says whether the control daemon can be left untried, before there is a plan.
func (v *view) wantsToObserve() bool {
	return v.plan.Observe || !v.planned && v.next.For(v.host(), gpu.GPU{}).Mode == config.ModeObserve
}

// shared says whether a GPU of the plan is shared.
func (v *view) shared(u gpu.UUID) bool {
	g, ok := v.plan.Find(u)
	return ok && g.Shared()
}

// limits are the conditions of the limits on cgroups.
func (v *view) limits() budget.Conditions {
	return budget.Conditions{
		Known: v.can.CgroupLimits.Known, Has: v.can.CgroupLimits.Has, Every: v.config.Usage.Interval, Shared: v.shared,
		Supervised: v.config.HTCondor.Supervise,
	}
}

// isolation are the conditions of the rules for device nodes.
func (v *view) isolation() isolation.Conditions {
	return isolation.Conditions{
		Planned: v.planned, Observed: v.plan.Observe, Supervised: v.config.HTCondor.Supervise && v.config.HTCondor.Manage,
		Instances: v.instances, ForJobs: v.forJobs, JobCgroups: v.settings.JobCgroups(),
	}
}

// startWord is whether supervisors ask before their job's program runs: see ending.Links.
// Enforced: the rules for device nodes are in force.
func (v *view) startWord(enforced bool) string {
	switch {
	case !v.config.HTCondor.Supervise || v.plan.Observe:
		return ""
	case v.isolation().Divided() && enforced, slices.ContainsFunc(v.plan.GPUs, plan.GPU.NeedsLimits):
		return api.StartRequired
	case v.can.CgroupLimits.Has:
		return api.StartAsked
	}
	return ""
}

// interest says which waiting jobs count on this node, and when to ask for them again.
func (v *view) interest() (i *waiting.Interest, again time.Duration) {
	if !v.planned {
		return waiting.InterestOf(nil, v.config)
	}
	return waiting.InterestOf(&v.plan, v.config)
}

// until is the time to the next round.
func (v *view) until() time.Duration {
	return daemons.Pace(v.daemons, v.config.Health.Interval, time.Now())
}

// overrides are the site's settings that take something away from what the agent
// wrote for HTCondor.
func (v *view) overrides() []condor.Override {
	if !v.written || !v.config.HTCondor.Manage || v.settings == nil {
		return nil
	}
	return condor.Overrides(v.generated, v.config.Paths.CondorConfig(), v.settings)
}
