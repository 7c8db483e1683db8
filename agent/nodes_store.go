package agent

import (
	"maps"
	"slices"
)

// of is what was done for a job.
func (n *deviceNodes) of(s Starter) (heldNodes, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.by[keyOf(s)]
	return h, ok
}

func (n *deviceNodes) enter(s Starter, h heldNodes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.by[keyOf(s)] = h
}

// ended are the entries without a job. What was said of jobs goes with them.
func (n *deviceNodes) ended(jobs []nodesJob) map[starterKey]heldNodes {
	living := map[starterKey]bool{{}: true}
	for _, j := range jobs {
		living[keyOf(j.Starter)] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.trouble, func(key starterKey, _ string) bool { return !living[key] })
	out := maps.Clone(n.by)
	maps.DeleteFunc(out, func(key starterKey, _ heldNodes) bool { return living[key] })
	return out
}

// forget drops an entry, and says whether another job has its slice by now.
func (n *deviceNodes) forget(key starterKey, h heldNodes) (taken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.by, key)
	for _, other := range n.by {
		taken = taken || other.slice == h.slice
	}
	return taken
}

// complain books why nodes are open, nil if they are not; news says that it is
// another reason than last time.
func (n *deviceNodes) complain(key starterKey, err error) (news bool) {
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
