package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// ad is a dynamic slot that runs alice's job 1.0.
func ad(slot string, mib int64, gpus ...int) condor.Slot {
	out := condor.Slot{Name: slot + "@wn1", Type: "Dynamic", JobID: "1.0", RemoteOwner: "alice@x", VRAM: &mib}
	for _, n := range gpus {
		out.AssignedGPUs = append(out.AssignedGPUs, string(uuid(n)))
	}
	return out
}

// ads are HTCondor's word of some slots, on GPUs that are shared.
func ads(all ...condor.Slot) Ads {
	out := Ads{Slots: map[string]condor.Slot{}, EnforcedBy: func(gpu.UUID, gpu.MiB) string { return EnforcedByNone }}
	for _, s := range all {
		out.Slots[condor.SlotName(s.Name)] = s
	}
	return out
}

// TestSettle: an entry of alice's job 1.0, 4096 MiB of GPU 0 in slot1_1, beside the ad
// of its slot.
func TestSettle(t *testing.T) {
	change := func(s condor.Slot, do func(*condor.Slot)) condor.Slot {
		do(&s)
		return s
	}
	is := func(n int, budget gpu.MiB, id string, confirmed bool) Job {
		return Job{GPU: uuid(n), Budget: budget, ID: id, Owner: "alice", Confirmed: confirmed}
	}
	for _, c := range []struct {
		name      string
		wall      string
		ad        condor.Slot
		want      Job // GPU, Budget, ID, Owner, Confirmed; no GPU: the entry is gone
		differs   string
		open      int
		elsewhere bool
	}{
		{"the same", EnforcedByNone, ad("slot1_1", 4096, 0), is(0, 4096, "1.0", true), "", 0, false},
		{"several shares", EnforcedByNone, ad("slot1_1", 4096, 0, 0), is(0, 4096, "1.0", true), "", 0, false},
		{"another budget", EnforcedByNone, ad("slot1_1", 8192, 0), is(0, 8192, "1.0", true), "the hook told of 4096 MiB", 0, false},
		{"another GPU", EnforcedByNone, ad("slot1_1", 4096, 1), is(1, 4096, "1.0", true), "the hook told of 4096 MiB", 0, false},
		{"no GPU", EnforcedByNone, ad("slot1_1", 4096), Job{}, "the job told of " + string(uuid(0)), 0, true},
		{"another whole GPU", EnforcedByWhole, ad("slot1_1", 4096, 1), Job{}, "the job told of " + string(uuid(0)), 0, true},
		{"its whole GPU", EnforcedByWhole, ad("slot1_1", 8192, 0, 1), is(0, 4096, "1.0", true), "", 0, false},
		{"another job's", EnforcedByNone, change(ad("slot1_1", 8192, 1), func(s *condor.Slot) { s.JobID = "2.0" }),
			is(0, 4096, "1.0", false), "", 1, false},
		{"another id of its own starter", EnforcedByNone,
			change(ad("slot1_1", 4096, 0), func(s *condor.Slot) { s.JobID, s.StarterPID = "2.0", 1 }),
			is(0, 4096, "2.0", true), "", 0, false},
		{"between two jobs", EnforcedByNone, change(ad("slot1_1", 8192, 1), func(s *condor.Slot) { s.JobID = "" }),
			is(0, 4096, "1.0", false), "", 1, false},
		{"not readable", EnforcedByNone, change(ad("slot1_1", 8192, 1), func(s *condor.Slot) { s.Unreadable = "AssignedGPUs" }),
			is(0, 4096, "1.0", false), "", 1, false},
		{"none", EnforcedByNone, ad("slot1_9", 4096, 0), is(0, 4096, "1.0", false), "", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := newNode()
			table, s := New(node), node.starter(1, "slot1_1")
			entry := job(s, 0, 4096)
			entry.EnforcedBy = c.wall
			table.add(entry)
			found := table.Settle(ads(c.ad))
			var differs string
			for _, m := range found.Mismatches {
				differs += m.Text
			}
			if !strings.HasPrefix(differs, c.differs) || (c.differs == "") != (differs == "") {
				t.Errorf("mismatches %+v", found.Mismatches)
			}
			if found.Open != c.open || (len(found.Taken) > 0) != (c.want.GPU != uuid(0)) {
				t.Errorf("%d open, taken %+v", found.Open, found.Taken)
			}
			table.Look(func(v *View) {
				if v.IsElsewhere(s) != c.elsewhere {
					t.Errorf("elsewhere is %t", !c.elsewhere)
				}
			})
			var got Job
			if all := table.Running(); len(all) == 1 {
				j := all[0]
				got = Job{GPU: j.GPU, Budget: j.Budget, ID: j.ID, Owner: j.Owner, Confirmed: j.Confirmed}
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestAdopt: starters from before the agent get their GPUs from HTCondor's ads. One that
// HTCondor does not know is another startd's, after some answers.
func TestAdopt(t *testing.T) {
	node := newNode()
	table := New(node)
	mine, other := node.starter(1, "slot1_1"), node.starter(2, "slot7_7")
	table.Await([]starter.Starter{mine, other})
	word := ads(ad("slot1_1", 4096, 0))
	alice := starter.Account{UID: 1000, Known: true}
	word.Account = func(starter.Starter, condor.Slot) starter.Account { return alice }
	word.Budget = func(_ gpu.UUID, vram int64) gpu.MiB { return gpu.MiB(vram) / 2 }
	for asked := 1; asked < MostAsked; asked++ {
		if found := table.Settle(word); found.Open != 1 || len(found.Ignored) != 0 {
			t.Errorf("after %d answers: %+v", asked, found)
		}
	}
	found := table.Settle(word)
	if found.Open != 0 || len(found.Ignored) != 1 || !found.Ignored[0].Is(other) || table.Unknown() != "" {
		t.Errorf("%+v, unknown %q", found, table.Unknown())
	}
	all := table.Running()
	if len(all) != 1 || all[0].GPU != uuid(0) || all[0].Budget != 2048 ||
		!all[0].Adopted || !all[0].Confirmed || all[0].Account != alice {
		t.Errorf("%+v", all)
	}
}

// TestAdoptOtherStarter: two startds of a node may have slots of one name.
func TestAdoptOtherStarter(t *testing.T) {
	node := newNode()
	table := New(node)
	table.Await([]starter.Starter{node.starter(1, "slot1_1")})
	others := ad("slot1_1", 4096, 0)
	others.StarterPID = 2
	for range MostAsked {
		table.Settle(ads(others))
	}
	if table.Busy(uuid(0)) || table.Unknown() != "" {
		t.Errorf("%+v, unknown %q", table.Running(), table.Unknown())
	}
}

// TestObserved: on an observed node GPUs are found by the site's own ids, and jobs that
// have one at the same time are marked.
func TestObserved(t *testing.T) {
	node := newNode()
	table := New(node)
	without := node.starter(3, "slot1_3")
	table.Discover([]starter.Starter{node.starter(1, "slot1_1"), node.starter(2, "slot1_2"), without})
	none := ad("slot1_3", 0)
	first, second := ad("slot1_1", 0, 0), ad("slot1_2", 0, 0)
	first.AssignedGPUs, second.AssignedGPUs = []string{"CUDA0", "CUDA1"}, []string{"CUDA0"}
	second.AccountingGroup = "atlas.prod"
	word := ads(first, second, none)
	word.EnforcedBy = func(gpu.UUID, gpu.MiB) string { return "" }
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	word.Began = func(uint64, time.Time) time.Time { return began }
	word.Observed = func(_ condor.Slot, id string) (gpu.UUID, bool) { return uuid(0), id == "CUDA0" }
	if found := table.Settle(word); found.Open != 0 {
		t.Errorf("%+v", found)
	}
	all := table.Running()
	if len(all) != 2 || !all[0].Beside || !all[1].Beside || all[0].Adopted ||
		all[0].Since != began || all[1].Group != "atlas.prod" {
		t.Errorf("%+v", all)
	}
	table.Look(func(v *View) {
		if !v.IsElsewhere(without) {
			t.Error("a job without GPUs stays open")
		}
	})
}
