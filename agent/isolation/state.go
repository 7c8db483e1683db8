package isolation

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// of is the rule of a slice.
func (n *Nodes) of(slice starter.Cgroup) (heldNodes, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.by[slice]
	return h, ok
}

// has says whether a job of a starter got a rule.
func (n *Nodes) has(s starter.Starter) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.by {
		if h.starter.Is(s) {
			return true
		}
	}
	return false
}

// enter books the rule of a slice, in the place of the one of a job before.
func (n *Nodes) enter(slice starter.Cgroup, h heldNodes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.by[slice] = h
}

// settle says that a slice had its first rule at or before a time, once.
func (n *Nodes) settle(slice starter.Cgroup, before time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.by[slice]
	if !ok || h.settled || h.since.After(before) {
		return false
	}
	h.settled = true
	n.by[slice] = h
	return true
}

// ended forgets the jobs whose starters have ended, and returns their slices. What
// was said of such jobs goes with them. A slice with a process that outlives its job keeps
// the rule until that process ends. The caller holds turn.
func (n *Nodes) ended(alive func(process.ID) bool) []starter.Cgroup {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []starter.Cgroup
	for slice, h := range n.by {
		if !alive(h.starter.ID) && !slice.Populated() {
			out = append(out, slice)
			delete(n.by, slice)
		}
	}
	maps.DeleteFunc(n.reasons, func(key process.ID, _ string) bool {
		return key != process.ID{} && !alive(key)
	})
	return out
}

// complain books why nodes are open, nil if they are not; news says that it is
// another reason than last time.
func (n *Nodes) complain(key process.ID, err error) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.reasons, key)
		return false
	}
	was := n.reasons[key]
	n.reasons[key] = err.Error()
	return was != err.Error()
}

// Enforced says that nothing keeps the rules from all jobs, as far as is known.
func (n *Nodes) Enforced() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kernel != nil && n.reasons[process.ID{}] == ""
}

// Warnings say which jobs, and what else, can open the device nodes of others. They are
// complete sentences, each once.
func (n *Nodes) Warnings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, why := range n.reasons {
		out = append(out, "Jobs can open the device nodes of other MIG devices of their GPU: "+why+".")
	}
	if n.open != "" {
		out = append(out, "Programs outside the cgroups of jobs can open device nodes of MIG devices or shared GPUs: "+
			strings.ReplaceAll(n.open, "\n", "; ")+".")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// daemonsAt is what is known of a cgroup of HTCondor's daemons or of users.
func (n *Nodes) daemonsAt(dir starter.Cgroup) (d daemonCgroup, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, known = n.daemons[dir]
	return d, known
}

// allDaemons are the cgroups of HTCondor's daemons that are there; those that ended are
// forgotten.
func (n *Nodes) allDaemons() map[starter.Cgroup]daemonCgroup {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.daemons, func(dir starter.Cgroup, _ daemonCgroup) bool { return !dir.Exists() })
	return maps.Clone(n.daemons)
}

// ruled says whether a rule of this agent is on one of these cgroups.
func ruled(cgroups map[starter.Cgroup]daemonCgroup) bool {
	for _, d := range cgroups {
		if !d.rule.Empty() {
			return true
		}
	}
	return false
}

func (n *Nodes) enterDaemons(dir starter.Cgroup, d daemonCgroup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.daemons[dir] = d
}

// complainOfDaemons books why nodes are open to what HTCondor runs outside the cgroups of
// jobs, nil if they are not; news says that it is another reason than last time.
func (n *Nodes) complainOfDaemons(err error) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.open
	n.open = ""
	if err != nil {
		n.open = err.Error()
	}
	return n.open != "" && n.open != was
}
