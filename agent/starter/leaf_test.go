package starter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestCgroupsOfAUser: whoever has a service manager of his own makes cgroups of
// any name below it, HTCondor's too.
func TestCgroupsOfAUser(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	for i, below := range []string{
		"/user.slice/user-1001.slice/user@1001.service/app.slice",
		"/user.slice/user-1001.slice/user@1001.service",
		"/machine.slice/m.scope/user.slice/user-1001.slice/user@1001.service/user.slice/user@0.service",
	} {
		f.Add(proctree.Process{PID: 2000 + i, Parent: 1, Comm: "x", UID: 1001, Cgroup: below + proctree.CgroupOf("slot1_1")})
		if c, err := f.fs().Identify(1001, 2000+i); !errors.Is(err, ErrNoSlot) {
			t.Errorf("below %s a process is taken for one of %s (%v)", below, c.Starter.Slot, err)
		}
		if text, err := f.fs().trustedCgroup(2000 + i); err != nil || strings.Contains(string(text), "user@") {
			t.Errorf("below %s it trusts %q, %v", below, text, err)
		}
		f.Add(proctree.Process{PID: 3000 + i, Parent: s.PID, Comm: "x", UID: 1001, Cgroup: below + proctree.CgroupOf("slot1_1")})
	}
	if leaf := f.fs().JobCgroup(s); leaf != "" {
		t.Errorf("the job's cgroup is %s", leaf)
	}
}

// TestCgroupsBelowAJob: a job that names a cgroup of its own like a service manager is
// in its slot all the same.
func TestCgroupsBelowAJob(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	slice, _, _ := strings.Cut(proctree.CgroupOf("slot1_1"), ".slice/")
	for i, below := range []string{"user@1234.service", "x", "user@1234.service/_x_slot1_2@wn1.slice/_x_slot1_2@wn1.scope"} {
		f.Add(proctree.Process{PID: 2000 + i, Parent: 1, Comm: "x", UID: 1001, Cgroup: slice + ".slice/" + below})
		if slot, err := f.fs().cgroupSlot(2000 + i); err != nil || !SameSlot(s.Slot, slot) {
			t.Errorf("in %s the slot is %q, %v", below, slot, err)
		}
		if leaf, _ := f.fs().Leaf(2000 + i); !leaf.Left || leaf.Path != proctree.CgroupOf("slot1_1") {
			t.Errorf("in %s the leaf is %+v", below, leaf)
		}
	}
	if leaf, _ := f.fs().Leaf(s.PID); leaf.Left {
		t.Errorf("the starter is at %+v", leaf)
	}
}

// TestLoginMoved: a job that moves a login of its account out of the login's scope does not
// move it out of what the agent holds: HTCondor gives both their slice to the user.
func TestLoginMoved(t *testing.T) {
	const slot = "/htcondor/_var_lib_condor_execute_slot1_1@wn1"
	const scope = slot + "/sshd.slice/sshd.scope"
	for in, want := range map[string]Leaf{
		scope:                             {Path: scope, Login: true},
		scope + "/deeper":                 {Path: scope, Login: true},
		slot + "/sshd.slice":              {Path: scope, Login: true, Left: true},
		slot + "/sshd.slice/evil":         {Path: scope, Login: true, Left: true},
		slot + "/sshd.slice/x/sshd.scope": {Path: scope, Login: true, Left: true},
		slot + "/sshd":                    {Path: slot + "/sshd", Login: true}, // up to 24.7, root's
	} {
		want.slot = "slot1_1@wn1"
		if got := leafOf([]byte("0::" + in + "\n")); got != want {
			t.Errorf("%s: %+v, want %+v", in, got, want)
		}
	}
}

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
		"a login below the slice":  {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/sshd.slice/sshd.scope\n", job, "slot1_1@wn1"},
		"23.9.6":                   {"0::/htcondor/condor_var_lib_condor_execute_slot1_1@wn1\n", "/htcondor/condor_var_lib_condor_execute_slot1_1@wn1", "slot1_1@wn1"},
		"several startds":          {"0::/htcondor/_var_gpu0_slot1_1@gpu0@wn1.slice/_var_gpu0_slot1_1@gpu0@wn1.scope", "/htcondor/_var_gpu0_slot1_1@gpu0@wn1.slice/_var_gpu0_slot1_1@gpu0@wn1.scope", "slot1_1@gpu0@wn1"},
		"the slice alone":          {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice\n", job, "slot1_1@wn1"},
		"beside the scope":         {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/x/y\n", job, "slot1_1@wn1"},
		"as another slot's scope":  {"0::/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/_var_lib_condor_execute_slot1_2@wn1.scope\n", job, "slot1_1@wn1"},
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
		in := path
		if leafOf([]byte(text)).Left {
			in = path[:strings.LastIndexByte(path, '/')]
		}
		if !strings.Contains(text, "0::"+in) || strings.Contains(path, "..") && strings.Contains("/"+path+"/", "/../") {
			t.Errorf("%q from %q", path, text)
		}
		if strings.Count(text, "\n") <= 1 && cgroup.SlotIn([]byte(text)) != slot {
			t.Errorf("slot %q from %q", slot, text)
		}
	})
}

// TestThreadThatRuns: with cgroup v1 a first thread that has ended is shown in the root,
// and its descriptors are closed; those of the threads that run are asked for.
func TestThreadThatRuns(t *testing.T) {
	f := newFakeProc(t)
	leader := proctree.Thread{TID: 700, State: "Z", Cgroup: "4:memory:/\n0::/\n"}
	ended := proctree.Thread{TID: 701, State: "Z", Cgroup: "4:memory:/\n0::/\n"}
	runs := proctree.Thread{TID: 702, State: "S", Cgroup: "4:memory:/htcondor/condor_var_lib_condor_execute_slot3_1@pool.test\n0::/\n", Opened: "/dev/nvidia0"}
	f.Add(proctree.Process{PID: 700, Parent: 1, Comm: "job", State: "Z", Cgroup: "/", Threads: []proctree.Thread{leader, ended, runs}})
	if slot, err := f.fs().cgroupSlot(700); slot != "slot3_1@pool.test" || err != nil {
		t.Errorf("a job that hides behind its first thread is in slot %q, %v", slot, err)
	}
}

// TestJobSlice: the names are those of 25.14.1 and 23.9.6.
func TestJobSlice(t *testing.T) {
	const slot = "/htcondor/_var_lib_condor_execute_slot1_1@wn1"
	for leaf, want := range map[string]string{
		slot + ".slice" + strings.TrimPrefix(slot, "/htcondor") + ".scope": slot + ".slice",
		"/htcondor/condor_var_lib_condor_execute_slot1_1@wn1":              "",
		"/system.slice/_x_slot1_1@wn1.scope":                               "",
	} {
		got, ok := JobSlice(leaf)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %t, want %s", leaf, got, ok, want)
		}
	}
}

// TestLeafRemade: a user who owns the slice can remove HTCondor's cgroup in it and make one of its name. What is
// in that one has left the job's cgroup.
func TestLeafRemade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes directories of other accounts")
	}
	f := newFakeProc(t)
	n := f.fs()
	n.Mount = t.TempDir()
	s := f.starter(1000, "slot1_1")
	for i, c := range []struct {
		leaf string
		uid  int
		left bool
	}{
		{proctree.CgroupOf("slot1_1"), 0, false},
		{proctree.CgroupOf("slot1_1"), 1001, true},
		{"/htcondor/condor_x_slot1_1@wn1", 1001, false}, // up to 24.7 HTCondor gives it to the user
	} {
		pid := 2000 + i
		f.Add(proctree.Process{PID: pid, Parent: s.PID, Comm: "x", UID: 1001, Cgroup: c.leaf})
		dir := filepath.Join(n.Mount, c.leaf)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, c.uid, c.uid)); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { leaf, _ := n.Leaf(pid); return leaf.Left == c.left })
		if leaf, _ := n.Leaf(pid); leaf.Path != c.leaf {
			t.Errorf("of account %d: %+v", c.uid, leaf)
		}
		if caller, err := n.identifyHeld(noHandle, Peer{UID: 1001, PID: pid}); err != nil || caller.Leaf.Left != c.left {
			t.Errorf("of account %d the caller is %+v, %v", c.uid, caller, err)
		}
		if got := n.JobCgroup(s); got != c.leaf { // where its slice gets its device rule
			t.Errorf("of account %d the job's cgroup is %q", c.uid, got)
		}
		f.End(pid)
	}
}

// TestLeafOfAnEndedProcess: the cgroup of a process that has ended may be gone. It is no job's, and nothing
// looks for it: a look for what is not there waits for whoever makes and removes cgroups beside it.
func TestLeafOfAnEndedProcess(t *testing.T) {
	leaf := proctree.CgroupOf("slot1_1")
	f := newFakeProc(t)
	n := f.fs()
	n.Mount = "a mount that nothing looks at"
	s := f.starter(1000, "slot1_1")
	f.Add(proctree.Process{PID: 2000, Parent: s.PID, Comm: "x", UID: 1001, Cgroup: leaf + "/sub (deleted)", State: "Z"})
	if l, _ := n.Leaf(2000); !l.Left || l.Path != leaf {
		t.Errorf("%+v", l)
	}
	f.Add(proctree.Process{PID: 2001, Parent: s.PID, Comm: "x", UID: 1001, Cgroup: filepath.Dir(leaf) + "/x (deleted)"})
	if got := n.JobCgroup(s); got != leaf { // a name that a user chose keeps no device rule from the slice
		t.Errorf("the job's cgroup is %q", got)
	}
	if c, err := n.identifyHeld(noHandle, Peer{UID: 1001, PID: 2000}); err == nil || err.Error() != "the caller has ended" {
		t.Errorf("it is identified: %+v, %v", c, err)
	}
}
