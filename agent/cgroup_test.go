package agent

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestJobLeaf: the lines are those seen on 25.14.1 and 23.9.6 (htcondor_starter
// as root), with the prefix that systemd adds.
func TestJobLeaf(t *testing.T) {
	const job = "/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/_var_lib_condor_execute_slot1_1@wn1.scope"
	for name, c := range map[string]struct{ text, path, slot string }{
		"25.14.1":                  {"0::" + job + "\n", job, "slot1_1@wn1"},
		"below systemd":            {"0::/system.slice/condor.service" + job + "\n", "/system.slice/condor.service" + job, "slot1_1@wn1"},
		"hybrid":                   {"2:memory:/x\n0::" + job + "\n", job, "slot1_1@wn1"},
		"the job's own below it":   {"0::" + job + "/mine/deeper\n", job, "slot1_1@wn1"},
		"it pretends another slot": {"0::" + job + "/_x_slot9_9@wn1.slice/_x_slot9_9@wn1.scope\n", job, "slot1_1@wn1"},
		"a login":                  {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1/sshd.slice/sshd.scope\n", "", ""},
		"a login below the slice":  {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/sshd.slice/sshd.scope\n", "", ""},
		"23.9.6":                   {"0::/htcondor/condor_var_lib_condor_execute_slot1_1@wn1\n", "/htcondor/condor_var_lib_condor_execute_slot1_1@wn1", "slot1_1@wn1"},
		"several startds":          {"0::/htcondor/_var_gpu0_slot1_1@gpu0@wn1.slice/_var_gpu0_slot1_1@gpu0@wn1.scope", "/htcondor/_var_gpu0_slot1_1@gpu0@wn1.slice/_var_gpu0_slot1_1@gpu0@wn1.scope", "slot1_1@gpu0@wn1"},
		"the slice alone":          {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice\n", "", ""},
		"a scope alone":            {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.scope\n", "/htcondor/_var_lib_condor_execute_slot1_1@wn1.scope", "slot1_1@wn1"},
		"no slot":                  {"0::/system.slice/condor.service\n", "", ""},
		"the root":                 {"0::/\n", "", ""},
		"another namespace":        {"0::/../.." + job + "\n", "", ""},
		"cgroup v1":                {"4:memory:" + job + "\n", "", ""},
		"nothing":                  {"", "", ""},
	} {
		if path, slot := jobLeaf([]byte(c.text)); path != c.path || slot != c.slot {
			t.Errorf("%s: %q of %q, want %q of %q", name, path, slot, c.path, c.slot)
		}
	}
}

// FuzzJobLeaf: a leaf is one of the cgroups that the process is in, of the slot
// that the caller's own parser finds, and never one above the mount.
func FuzzJobLeaf(f *testing.F) {
	f.Add("0::/htcondor/_x_slot1_1@h.slice/_x_slot1_1@h.scope\n")
	f.Add("0::/htcondor/condor_x_slot1_1@h/sshd.slice\n")
	f.Add("0::/../_x_slot1@h")
	f.Fuzz(func(t *testing.T, text string) {
		path, slot := jobLeaf([]byte(text))
		if path == "" {
			return
		}
		if !strings.Contains(text, "0::"+path) || strings.Contains(path, "..") && strings.Contains("/"+path+"/", "/../") {
			t.Errorf("%q from %q", path, text)
		}
		if strings.Count(text, "\n") <= 1 && cgroup.SlotIn([]byte(text)) != slot {
			t.Errorf("slot %q from %q", slot, text)
		}
	})
}

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
		above, other := cgroupDir{"/c/htcondor", 7}, cgroupDir{"/c/htcondor", 8}
		draw := func(name string) []limit {
			var out []limit
			for _, soft := range rapid.SliceOfN(rapid.Int64Range(0, 9000), 0, 5).Draw(t, name) {
				out = append(out, limit{reservation: reservation{Soft: gpu.MiB(soft), Path: []cgroupDir{{"/c/htcondor/x", 9}, above}}})
			}
			return out
		}
		living, dead := draw("living"), draw("dead")
		stranger := limit{reservation: reservation{Soft: 5000, Path: []cgroupDir{{"/c/htcondor/y", 10}, other}}}
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
	f.Add([]byte(`[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","starter":{"PID":1,"Started":2,"Slot":"slot1_1"},"hard_mib":4,"soft_mib":4,"path":[{"path":"/x","inode":1}]}]`))
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
