package jobs

import (
	"testing"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestOnlyGPU(t *testing.T) {
	one, two := string(uuid(1)), string(uuid(2))
	for name, c := range map[string]struct {
		ids  []string
		want gpu.UUID
	}{
		"one": {[]string{one}, uuid(1)}, "its shares": {[]string{one, one, one}, uuid(1)},
		"none": {nil, ""}, "two": {[]string{one, two}, ""}, "two with shares": {[]string{two, one, two}, ""}, "no UUID": {[]string{"CUDA0"}, ""},
	} {
		got, ok := onlyGPU(condor.Slot{AssignedGPUs: c.ids})
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %s, %t", name, got, ok)
		}
	}
}

// TestTenantsWords: what the ad says of a job's group and VO stands, unless it says nothing of tenants at all.
func TestTenantsWords(t *testing.T) {
	type words struct{ group, vo, unsaid string }
	hook := words{"atlas", "cern", ""}
	for name, c := range map[string]struct{ before, ad, want words }{
		"nothing is published":     {hook, words{}, hook},
		"a group":                  {hook, words{group: "cms"}, words{group: "cms"}},
		"a VO":                     {hook, words{vo: "desy"}, words{vo: "desy"}},
		"both":                     {hook, words{group: "cms", vo: "desy"}, words{group: "cms", vo: "desy"}},
		"the ad does not say":      {hook, words{group: "cms", unsaid: "too long"}, hook},
		"what was not said is now": {words{unsaid: "too long"}, words{}, words{}},
		"the hook could not say":   {words{unsaid: "too long"}, words{group: "cms"}, words{group: "cms"}},
	} {
		j := Job{GPU: uuid(0), Budget: 4096, Group: c.before.group, VO: c.before.vo, Unsaid: c.before.unsaid}
		a := ad("slot1_1", 4096, 0)
		a.Group, a.VO, a.Unsaid = c.ad.group, c.ad.vo, c.ad.unsaid
		if differs := j.correct(a, ads()); differs != "" || !j.Confirmed || j.ID != "1.0" {
			t.Errorf("%s: %q, %+v", name, differs, j)
		}
		if got := (words{j.Group, j.VO, j.Unsaid}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestReserve: devices that wait to go still do when others are reserved.
func TestReserve(t *testing.T) {
	node := newNode()
	table := New(node)
	leave := func(want ...bool) {
		t.Helper()
		table.Look(func(v *View) {
			for n, leaves := range want {
				if (v.Leaves(uuid(n)) != "") != leaves {
					t.Errorf("GPU %d leaves: %t", n, !leaves)
				}
			}
		})
	}
	for range 2 {
		table.Leave(nil)
		leave(false, false, false)
		if held := table.Reserve([]gpu.UUID{uuid(0)}); held != "" {
			t.Errorf("held by %s", held)
		}
		leave(true, false, false)
		before := map[gpu.UUID]string{uuid(1): "waits"}
		table.Leave(before)
		table.Reserve([]gpu.UUID{uuid(0)})
		leave(true, true, false)
		if len(before) != 1 {
			t.Errorf("the caller's map: %v", before)
		}
	}
	s := node.starter(1, "slot1_1")
	held := job(s, 2, 4096)
	held.Device = uuid(3)
	table.add(held)
	for _, n := range []int{2, 3} {
		if by := table.Reserve([]gpu.UUID{uuid(0), uuid(n)}); by != "slot1_1" {
			t.Errorf("GPU %d is held by %q", n, by)
		}
	}
	leave(true, true, false)
}
