package simulate

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// groupOf makes nodes of the first model that has MIG, or that has not.
func groupOf(t *testing.T, name string, nodes int, mig bool) Group {
	t.Helper()
	for _, key := range Models() {
		g, err := NewGroup(name, nodes, 2, key, 32, 1<<18)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(g.Inventory.GPUs, func(one gpu.GPU) bool { return one.MIGCapable }) == mig {
			return g
		}
	}
	t.Fatalf("no model with MIG: %v", mig)
	return Group{}
}

// TestUsual: static MIG is usual where there is MIG, dynamic MIG where few
// enough nodes of all groups together have it.
func TestUsual(t *testing.T) {
	half := maxFollowing / 2
	for _, c := range []struct {
		name            string
		groups          []Group
		static, dynamic bool
	}{
		{"no MIG", []Group{groupOf(t, "a", 1, false)}, false, false},
		{"as many nodes as are followed", []Group{groupOf(t, "a", half, true), groupOf(t, "b", half, true), groupOf(t, "c", 9, false)}, true, true},
		{"one more", []Group{groupOf(t, "a", half, true), groupOf(t, "b", half+1, true)}, true, false},
		{"one more, and then one without MIG", []Group{groupOf(t, "a", maxFollowing+1, true), groupOf(t, "b", 1, false)}, true, false},
	} {
		usual, err := File{Pool: Pool{Groups: c.groups, Matching: DefaultMatching()}}.Usual(4)
		if err != nil {
			t.Fatal(c.name, err)
		}
		has := func(name string) bool {
			return slices.ContainsFunc(usual, func(p Policy) bool { return p.Name == name })
		}
		if has(nameStatic) != c.static || has(nameDynamic) != c.dynamic {
			t.Errorf("%s: static %v, dynamic %v", c.name, has(nameStatic), has(nameDynamic))
		}
	}
}
