package agent

import (
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// of is the rule of a slice.
func (n *deviceNodes) of(slice starter.Cgroup) (heldNodes, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.by[slice]
	return h, ok
}

// has says whether a job of a starter got a rule.
func (n *deviceNodes) has(s starter.Starter) bool {
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
func (n *deviceNodes) enter(slice starter.Cgroup, h heldNodes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.by[slice] = h
}

// ended forgets the jobs whose starters have ended, and returns their slices. What
// was said of such jobs goes with them. The caller holds turn.
func (n *deviceNodes) ended(alive func(process.ID) bool) []starter.Cgroup {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []starter.Cgroup
	for slice, h := range n.by {
		if !alive(h.starter.ID) {
			out = append(out, slice)
			delete(n.by, slice)
		}
	}
	maps.DeleteFunc(n.trouble, func(key process.ID, _ string) bool {
		return key != process.ID{} && !alive(key)
	})
	return out
}

// complain books why nodes are open, nil if they are not; news says that it is
// another reason than last time.
func (n *deviceNodes) complain(key process.ID, err error) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.trouble, key)
		return false
	}
	was := n.trouble[key]
	n.trouble[key] = err.Error()
	return was != err.Error()
}

// enforced says that nothing keeps the rules from all jobs, as far as is known.
func (n *deviceNodes) enforced() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wall != nil && n.trouble[process.ID{}] == ""
}

// warnings are complete sentences, each once.
func (n *deviceNodes) warnings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, why := range n.trouble {
		out = append(out, "Jobs can open the device nodes of other MIG devices of their GPU: "+why+".")
	}
	slices.Sort(out)
	return slices.Compact(out)
}
