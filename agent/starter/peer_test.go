package starter

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// connected is a connection of the test's process to itself.
func connected(t *testing.T) *net.UnixConn {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	caller, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caller.Close() })
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestPeer: a caller that is there is identified, and no handle of it stays open. One of another PID
// namespace is not, and a connection that is gone has no caller.
func TestPeer(t *testing.T) {
	f, conn := newFakeProc(t), connected(t)
	s := f.starter(100, "slot1_1")
	f.Add(proctree.Process{PID: os.Getpid(), Parent: s.PID, Comm: "job", UID: uint32(os.Getuid()), Cgroup: proctree.CgroupOf(s.Slot)})
	p, err := PeerOf(conn)
	if err != nil || p != (Peer{UID: uint32(os.Getuid()), PID: os.Getpid()}) {
		t.Fatalf("%+v, %v", p, err)
	}
	next := func() int { // the lowest descriptor that is free
		fd, err := unix.Open(f.Root, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		return fd
	}
	before := next()
	for range 3 {
		if c, err := f.fs().IdentifyPeer(conn, p); err != nil || c.Starter != s || c.UID != p.UID || c.PID != p.PID || c.Started != proctree.StartOf(p.PID) {
			t.Errorf("%+v, %v", c, err)
		}
	}
	if after := next(); after > before {
		t.Errorf("descriptors stay open: %d was free, %d is", before, after)
	}
	for _, pid := range []int{0, -1} {
		if _, err := f.fs().IdentifyPeer(conn, Peer{PID: pid}); err == nil || !strings.Contains(err.Error(), "another PID namespace") {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	f.End(s.PID)
	f.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "bash", UID: p.UID})
	if _, err := f.fs().IdentifyPeer(conn, p); err == nil || strings.Contains(err.Error(), "ended") {
		t.Errorf("in no slot: %v", err)
	}
	f.End(os.Getpid())
	if _, err := f.fs().IdentifyPeer(conn, p); err == nil || !strings.Contains(err.Error(), "the caller is gone") {
		t.Errorf("not in /proc: %v", err)
	}
	conn.Close()
	if p, err := PeerOf(conn); err == nil {
		t.Errorf("of no connection: %+v", p)
	}
	if c, err := f.fs().IdentifyPeer(conn, p); err == nil || !strings.Contains(err.Error(), "the caller is gone") {
		t.Errorf("of no connection: %+v, %v", c, err)
	}
}

// TestCallerThatEndsMeanwhile: what was read of a process that ends before the last read counts for nothing, also where
// another process has its PID then.
func TestCallerThatEndsMeanwhile(t *testing.T) {
	for _, another := range []bool{false, true} {
		f := newFakeProc(t)
		s := f.starter(100, "slot1_1")
		caller := proctree.Process{PID: 200, Parent: s.PID, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf(s.Slot)}
		f.Add(caller)
		wait := f.meanwhile(t, "200/cgroup", func() {
			if f.End(200); another {
				caller.Started = proctree.StartOf(200) + 1
				f.Add(caller)
			}
		})
		c, err := f.fs().identifyHeld(noHandle, Peer{UID: 1000, PID: 200})
		wait()
		if err == nil || err.Error() != "the caller ended while it was being identified" {
			t.Errorf("another has its PID: %t; %+v, %v", another, c, err)
		}
	}
}

// TestRunsBelow: a process is of a starter's job by the starter above it, or by its cgroup where it left its
// parents behind, and of no starter that has ended.
func TestRunsBelow(t *testing.T) {
	f := newFakeProc(t)
	s, other := f.starter(100, "slot1_1"), f.starter(101, "slot1_2")
	for pid, p := range map[int]proctree.Process{
		200: {Parent: s.PID, Cgroup: proctree.CgroupOf(s.Slot)}, 201: {Parent: 1, Cgroup: proctree.CgroupOf(s.Slot)},
		202: {Parent: s.PID}, 203: {Parent: other.PID}, 204: {Parent: 1, Cgroup: proctree.CgroupOf(other.Slot)}, 205: {Parent: 1},
	} {
		p.PID, p.Comm, p.UID = pid, "job", 1000
		f.Add(p)
	}
	below := func(s Starter) (pids []int) {
		for pid := 200; pid <= 206; pid++ { // there is no process 206
			if f.fs().RunsBelow(pid, s) {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	if got := below(s); !slices.Equal(got, []int{200, 201, 202}) {
		t.Errorf("below the starter: %v", got)
	}
	before := s
	before.Started--
	if got := below(before); len(got) > 0 {
		t.Errorf("below one that had its PID before: %v", got)
	}
	f.End(s.PID)
	if got := below(s); len(got) > 0 {
		t.Errorf("below a starter that has ended: %v", got)
	}
}

// TestTogetherWithoutCgroups: where HTCondor makes no cgroups the starter's own child above a process decides.
func TestTogetherWithoutCgroups(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	for pid, parent := range map[int]int{200: 100, 201: 200, 202: 201, 300: 100, 301: 300, 400: 1} {
		f.Add(proctree.Process{PID: pid, Parent: parent, Comm: "x", UID: 1000})
	}
	for pid, want := range map[int]bool{200: true, 201: true, 202: true, 300: false, 301: false, 400: false} {
		if got := f.fs().Together(pid, Caller{PID: 201}, s); got != want {
			t.Errorf("process %d: %t", pid, got)
		}
	}
	in := Caller{PID: 201, Leaf: Leaf{Path: "/leaf"}}
	if !f.fs().Together(300, in, s) {
		t.Error("what is in no leaf does not go with the job")
	}
	if in.Leaf.Login = true; f.fs().Together(201, in, s) {
		t.Error("what is in no leaf goes with a login")
	}
}

// TestCgroupsAbove: the cgroup first, then those above it, and the root is none of them.
func TestCgroupsAbove(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := CgroupsAbove(root, "/a/b")
	if err != nil || len(got) != 2 || got[0].Path != filepath.Join(root, "a/b") || got[1].Path != filepath.Join(root, "a") || got[0].Inode == got[1].Inode {
		t.Errorf("%+v, %v", got, err)
	}
	for _, none := range []string{"/", "", ".", "/a/c"} {
		if got, err := CgroupsAbove(root, none); err == nil {
			t.Errorf("%q: %+v", none, got)
		}
	}
}

// TestRunOfLeftovers: only root's agent removes what jobs left, and only where it may; what stays is logged.
func TestRunOfLeftovers(t *testing.T) {
	for _, c := range []struct {
		own  uint32
		may  bool
		want int
	}{{0, true, 2}, {0, false, 0}, {1000, true, 0}} {
		f, log := newFakeProc(t), strings.Builder{}
		n := Leftovers{Node: f.fs(), Log: slog.New(slog.NewTextHandler(&log, nil))}
		f.starter(100, "slot1_2")
		n.Mount, n.Own = t.TempDir(), c.own
		slice := n.has(t, "slot1_1", "", "") // it has files, which no cgroup's directory keeps from being removed
		if err := os.WriteFile(filepath.Join(slice, "cgroup.events"), []byte("populated 0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), removeEvery+removeEvery/2)
			defer cancel()
			n.Run(ctx, func() bool { return c.may })
		})
		if got := strings.Count(log.String(), "cgroups that jobs left stay"); got != c.want || got != strings.Count(log.String(), "\n") {
			t.Errorf("uid %d, may %t: logged %s", c.own, c.may, &log)
		}
	}
}

// TestStartdsOfGPUs: the slot of a starter has the name of the GPU's startd above it, and each startd is named once.
func TestStartdsOfGPUs(t *testing.T) {
	f := newFakeProc(t)
	for pid, name := range map[int]string{900: "gpu5a1e0c11", 901: "gpu00000000", 902: "gpu5a1e0c11", 903: "mine"} {
		f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd",
			Args: []string{"condor_startd", "-f", "-local-name", name}})
	}
	for pid, c := range map[int]struct {
		startd int
		want   string
	}{1000: {900, "slot1_1@gpu5a1e0c11"}, 1001: {901, "slot1_1@gpu00000000"}, 1002: {903, "slot1_1"}} {
		f.Add(proctree.Process{PID: pid, Parent: c.startd, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter",
			Args: []string{"condor_starter", "-f", "-a", "slot1_1"}})
		f.Add(proctree.Process{PID: pid + 100, Parent: pid, Comm: "prepare", UID: 1000})
		if got, err := f.fs().Identify(1000, pid+100); err != nil || got.Starter.Slot != c.want {
			t.Errorf("process %d: %+v, %v", pid, got, err)
		}
	}
	if got, want := f.fs().Startds(), []string{"gpu00000000", "gpu5a1e0c11"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	f.unreadable(t, "900/cmdline")
	if got, err := f.fs().Identify(1000, 1100); err == nil {
		t.Errorf("below a startd whose arguments cannot be read: %+v", got)
	}
}
