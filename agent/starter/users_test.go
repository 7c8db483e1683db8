package starter

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestOfUser: sessions and services of users count, those of root and of the system do not, and
// neither does a job.
func TestOfUser(t *testing.T) {
	f := newFakeProc(t)
	n := Users{f.fs()}
	for i, c := range []struct {
		cgroup string
		uid    uint32
		want   bool
	}{
		{"/user.slice/user-1001.slice/user@1001.service/app.slice/x.service", 1001, true},
		{"/user.slice/user-1001.slice/session-4.scope", 100001, true},
		{"/user.slice/user-1001.slice/session-4.scope", 0, false},
		{"/system.slice/cron.service", 1001, true},
		{"/system.slice/crond.service-x", 1001, false},
		{"/system.slice/docker-1.scope", 1001, false},
		{"/user.slices/x", 1001, false},
		{proctree.CgroupOf("slot1_1"), 1001, false},
	} {
		f.Add(proctree.Process{PID: 300 + i, Parent: 1, Comm: "x", UID: c.uid, Cgroup: c.cgroup})
		if got := n.OfUser(300 + i); got != c.want {
			t.Errorf("uid %d in %s: %t", c.uid, c.cgroup, got)
		}
		if got, err := n.AccountOf(300 + i); got != (Account{c.uid, c.uid != 0}) || err != nil {
			t.Errorf("uid %d: %+v, %v", c.uid, got, err)
		}
	}
	if _, err := n.AccountOf(999); n.OfUser(999) || err == nil {
		t.Error("a process that has ended")
	}
}

// TestOfUserBesideDaemons: what users' code leaves in the cgroup of HTCondor's daemons is a user's own. What a startd
// or a starter runs there is not, nor are HTCondor's other daemons and programs of the system elsewhere.
func TestOfUserBesideDaemons(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	text, err := f.fs().Cgroup(proctree.Startd)
	if err != nil || unified(text) == "" {
		t.Fatal(err, string(text))
	}
	daemons := unified(text)
	for i, c := range []struct {
		parent int
		cgroup string
		uid    uint32
		want   bool
	}{
		{1, daemons, 1001, true},
		{300, daemons, 1001, true},
		{s.PID, daemons, 1001, false},
		{proctree.Startd, daemons, 64, false},
		{1, daemons, 0, false},
		{1, "/system.slice/x.service", 1001, false},
		{1, proctree.CgroupOf("slot1_1"), 1001, false},
		{1 << 20, daemons, 1001, false}, // its parent cannot be read
		{304, daemons, 1001, false},     // its parent is root's, as with an MPS server
	} {
		f.Add(proctree.Process{PID: 300 + i, Parent: c.parent, Comm: "x", UID: c.uid, Cgroup: c.cgroup})
		if got := (Users{f.fs()}).OfUser(300 + i); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestOfUserInLongLine: users' code in the cgroup of HTCondor's daemons cannot hide below a long line of processes.
func TestOfUserInLongLine(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	text, err := f.fs().Cgroup(proctree.Startd)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		f.Add(proctree.Process{PID: 300 + i, Parent: max(1, (300+i-1)*min(i, 1)), Comm: "x", UID: 1001, Cgroup: unified(text)})
		f.Add(proctree.Process{PID: 400 + i, Parent: max(s.PID, (400+i-1)*min(i, 1)), Comm: "x", UID: 1001, Cgroup: unified(text)})
	}
	n := Users{f.fs()}
	for pid, want := range map[int]bool{300: true, 319: true, 400: false, 419: true} {
		if n.OfUser(pid) != want {
			t.Errorf("process %d: %t", pid, !want)
		}
	}
	f.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: "/"})
	f.Add(proctree.Process{PID: 500, Parent: 1, Comm: "munged", UID: 1001, Cgroup: "/"})
	if n.OfUser(500) {
		t.Error("a service beside daemons without a cgroup of their own")
	}
}

// TestOfUserInDeepCgroup: only users with cgroups of their own make such that the kernel does not show
// the path. Outside of all slots such a process is a user's own; in a slot it is the job's.
func TestOfUserInDeepCgroup(t *testing.T) {
	n := deepNode(t)
	n.has(t, "slot1_2", "deep", "201\n")
	until(t, func() bool { return (Users{n}).OfUser(200) })
	if (Users{n}).OfUser(201) {
		t.Error("a job's process in a deep cgroup is taken for a user's own")
	}
	f := fakeProc{proctree.Tree{Root: n.Root}}
	f.unreadable(t, "900/cgroup")
	if (Users{n}).OfUser(200) {
		t.Error("where the slots are not known, a process is taken for a user's own")
	}
	n = deepNode(t)
	n.Own = 1001
	if (Users{n}).OfUser(200) {
		t.Error("a process of the agent's account is taken for a user's own")
	}
}

// TestManyDeadThreads: a job whose tracer keeps very many dead threads counts for its slot, as one that left its own
// cgroup. Where its cgroup is not known it is a user's own.
func TestManyDeadThreads(t *testing.T) {
	f := newFakeProc(t)
	n := Users{f.fs()}
	dead := make([]proctree.Thread, 100)
	for i := range dead {
		dead[i] = proctree.Thread{TID: 10000 + i, State: "Z"}
	}
	for pid, cgroup := range map[int]string{500: proctree.CgroupOf("slot1_1"), 501: "/"} {
		f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "x", UID: 1001, Cgroup: cgroup, State: "Z", Threads: dead})
	}
	c, err := n.Identify(0, 500)
	if err != nil || c.Hook || !SameSlot(c.Starter.Slot, "slot1_1@wn1.example.org") || !c.Leaf.Left || n.OfUser(500) {
		t.Errorf("it counts for %+v, %v", c, err)
	}
	if c, err := n.Identify(0, 501); err == nil || !n.OfUser(501) {
		t.Errorf("with cgroups of version 1: %+v, %v", c, err)
	}
}

// TestOfUserAsksForAccountsFirst: where root's processes are is not asked, which may take long.
func TestOfUserAsksForAccountsFirst(t *testing.T) {
	f := newFakeProc(t)
	f.Add(proctree.Process{PID: 100, Parent: 1, Comm: "exporter"})
	file := f.Root + "/100/cgroup"
	if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if (Users{f.fs()}).OfUser(100) {
		t.Error("root's process is a user's own")
	}
}
