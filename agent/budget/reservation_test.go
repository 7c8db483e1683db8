package budget

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestCare(t *testing.T) {
	const budget = 4000
	set := reservation{Soft: budget, Hard: budget}
	given := reservation{Hard: budget}
	for _, c := range []struct {
		name         string
		r            reservation
		there, alive bool
		budget       gpu.MiB
		want         care
	}{
		{"it runs", set, true, true, budget, careCheck},
		{"it runs, and the startd has not told of it", set, true, true, 0, careCheck},
		{"the startd says another budget", set, true, true, 5000, careRenew},
		{"its end was told", given, true, true, budget, careCheck},
		{"its cgroup is gone after that", given, false, true, budget, careForget},
		{"its starter is gone, too", given, false, false, 0, careForget},
		{"the cgroup went first", set, false, true, budget, careRepair},
		{"both are gone", set, false, false, 0, careRepair},
		{"the cgroup outlives the starter", set, true, false, 0, careClear},
		{"after its end was told", given, true, false, 0, careClear},
	} {
		if got := c.r.care(c.there, c.alive, c.budget); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLeak: whatever is reserved above a cgroup that is gone, no repair takes
// what a living job has, and repairs take together what the dead ones left.
func TestLeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		above, other := starter.Cgroup{Path: "/c/htcondor", Inode: 7}, starter.Cgroup{Path: "/c/htcondor", Inode: 8}
		draw := func(name string) []limit {
			var out []limit
			for _, soft := range rapid.SliceOfN(rapid.Int64Range(0, 9000), 0, 5).Draw(t, name) {
				path := []starter.Cgroup{{Path: "/c/htcondor/x", Inode: 9}, above}
				out = append(out, limit{reservation: reservation{Soft: gpu.MiB(soft), Path: path}})
			}
			return out
		}
		living, dead := draw("living"), draw("dead")
		elsewhere := []starter.Cgroup{{Path: "/c/htcondor/y", Inode: 10}, other}
		stranger := limit{reservation: reservation{Soft: 5000, Path: elsewhere}}
		foreign := gpu.Bytes(gpu.MiB(rapid.Int64Range(0, 3000).Draw(t, "foreign")).Bytes())
		sum := func(all []limit) (n gpu.Bytes) {
			for _, l := range all {
				n += gpu.Bytes(l.Soft.Bytes())
			}
			return n
		}
		soft := sum(living) + sum(dead) + foreign
		for _, l := range dead {
			soft -= l.leak(above, soft, append(living, stranger))
		}
		if soft != sum(living)+foreign {
			t.Fatalf("%d left, want %d", soft, sum(living)+foreign)
		}
		// Once more, as an agent that ended between a repair and its note would.
		for _, l := range dead {
			soft -= l.leak(above, soft, living)
		}
		if soft < sum(living) {
			t.Fatalf("%d left, less than the living jobs' %d", soft, sum(living))
		}
	})
}

func FuzzReservations(f *testing.F) {
	f.Add([]byte(`[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","starter":{"PID":1,"Started":2,"Slot":"slot1_1"},` +
		`"hard_mib":4,"soft_mib":4,"path":[{"path":"/x","inode":1}]}]`))
	f.Add([]byte(`[{"path":[]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := store.Decode[[]reservation](b, "")
		if err == nil {
			err = checkReservations(all)
		}
		if err != nil {
			return
		}
		for _, r := range all {
			_ = r.cgroup() // must be there
			if r.Soft > r.Hard {
				t.Errorf("%+v", r)
			}
		}
	})
}
