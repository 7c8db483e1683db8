package ending

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// addSession is a process that a user runs outside of jobs.
func addSession(n *node, pid int) {
	n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: 1000, Cgroup: "/user.slice/user-1000.slice/session-1.scope"})
}

// TestEndOutside: clients of no job end, also when they come again. A job's stay, and one that is no user's own by now.
func TestEndOutside(t *testing.T) {
	n := newNode(t)
	addSession(n, 300)
	addSession(n, 302)
	for range 2 {
		n.clients = []int{300, 301, 302, 303}
		n.EndOutside(t.Context(), uuid(0), []int{300, 302, 303})
		n.Wait()
		if !slices.Equal(n.clients, []int{301, 303}) {
			t.Errorf("clients: %v", n.clients)
		}
	}
}

// TestKillOutside: a user's process outside of jobs is killed. Nothing is done to a process that a job
// has by now, to one of root's, to one that came with a PID of the sample, and to a service's.
func TestKillOutside(t *testing.T) {
	n := newNode(t)
	n.admit(n.starter(100, "slot1_1"))
	const session = "/user.slice/user-1000.slice/session-1.scope"
	var all []process.ID
	var sleeps []*exec.Cmd
	for i, is := range []proctree.Process{
		{Cgroup: session, UID: 1000},
		{Cgroup: proctree.CgroupOf("slot1_1"), UID: 1000},
		{Cgroup: session, UID: 1000, Parent: 100},
		{Cgroup: session, UID: 0},
		{Cgroup: session, UID: 1000},
		{Cgroup: "/system.slice/dcgm.service", UID: 1000},
	} {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		is.PID, is.Comm, is.Parent = c.Process.Pid, "sleep", max(is.Parent, 1)
		n.proc.Add(is)
		id := process.ID{PID: is.PID, Started: proctree.StartOf(is.PID)}
		if i == 4 {
			id.Started--
		}
		all, sleeps = append(all, id), append(sleeps, c)
	}
	var log strings.Builder
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.KillOutside(uuid(0), all)
	n.Wait()
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "was killed") {
		t.Errorf("logged: %s", got)
	}
	_ = sleeps[0].Process.Signal(syscall.SIGTERM)
	if _ = sleeps[0].Wait(); sleeps[0].ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the user's process: %v", sleeps[0].ProcessState)
	}
	for i, c := range sleeps[1:] {
		_ = c.Process.Signal(syscall.SIGTERM) // the first signal is what it ended by
		if _ = c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("process %d of the list: %v", i+1, c.ProcessState)
		}
	}
}

// TestEvictEnds: a look for who has nodes open does not delay the end of gpuslotd.
func TestEvictEnds(t *testing.T) {
	n := newNode(t)
	n.stopping.Store(true)
	n.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "x", UID: 1000, Cgroup: "/user.slice/user-1000.slice/session-1.scope"})
	file := filepath.Join(n.proc.Root, "driver/nvidia/gpus/0/information")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("GPU UUID: "+string(uuid(0))+"\nDevice Minor: 0\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := n.evict(uuid(0)); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("%v", err)
	}
}

// TestEvict: what users run outside of jobs is killed if it has a device node open of the GPU whose layout is to be
// changed, behind however many files. Nothing is done to who has many files and no such node, or another GPU's, and
// nothing at all while the GPU's nodes are not known.
func TestEvict(t *testing.T) {
	n := newNode(t)
	n.admit(n.starter(100, "slot1_1"))
	var log strings.Builder
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	file := func(name, text string) {
		name = filepath.Join(n.proc.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(t.TempDir(), "nvidia0")
	if err := unix.Mknod(own, unix.S_IFCHR, int(unix.Mkdev(195, 0))); err != nil {
		t.Skipf("no device node can be made: run this test as root: %v", err)
	}
	file("devices", "Character devices:\n1 nvidia-caps\n")
	file("driver/nvidia-caps/mig-minors", "config 3\ngpu0/gi1/access 7\ngpu1/gi1/access 8\n") // null, full and random
	const session = "/user.slice/user-1000.slice/session-1.scope"
	type client struct {
		name, cgroup, opened string
		uid                  uint32
		parent               int
		killed               bool
		run                  *exec.Cmd
	}
	all := []client{
		{name: "an instance's", cgroup: session, uid: 1000, opened: "/dev/full", killed: true},
		{name: "the GPU's", cgroup: session, uid: 1001, opened: own, killed: true},
		{name: "another GPU's", cgroup: session, uid: 1000, opened: "/dev/random"},
		{name: "none", cgroup: session, uid: 1000, opened: "/dev/null"},
		{name: "a job's", cgroup: proctree.CgroupOf("slot1_1"), uid: 1000, opened: "/dev/full", parent: 100},
		{name: "root's", cgroup: session, opened: "/dev/full"},
		{name: "a service's", cgroup: "/system.slice/dcgm.service", uid: 1000, opened: "/dev/full"},
	}
	for i := range all {
		c := &all[i]
		c.run = exec.Command("sleep", "1000")
		if err := c.run.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.run.Process.Kill(), c.run.Wait() }()
		pid := c.run.Process.Pid
		n.proc.Add(proctree.Process{PID: pid, Comm: "sleep", Parent: max(c.parent, 1), UID: c.uid, Cgroup: c.cgroup,
			Threads: []proctree.Thread{{TID: pid, State: "S", Opened: c.opened}}})
		for fd := range 300 {
			name := filepath.Join(n.proc.Root, fmt.Sprintf("%d/task/%d/fd/%d", pid, pid, 10+fd))
			if err := os.Symlink("/dev/null", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.Evict(uuid(0))
	n.ends.Wait()
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "it is not known who keeps a MIG layout") {
		t.Errorf("logged while the driver does not list the GPU: %s", got)
	}
	file("driver/nvidia/gpus/0000:1a:00.0/information", "GPU UUID: \t "+string(uuid(0))+"\nDevice Minor: \t 0\n")
	n.Evict(uuid(0))
	n.ends.Wait()
	for _, c := range all {
		_ = c.run.Process.Signal(syscall.SIGTERM) // the first signal is what it ended by
		_ = c.run.Wait()
		if killed := c.run.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL; killed != c.killed {
			t.Errorf("who has %s is killed: %t", c.name, killed)
		}
	}
	if got := log.String(); strings.Count(got, "was killed") != 2 {
		t.Errorf("logged: %s", got)
	}
}

// real has an Ender look at the processes of this machine, and take those of an account for users' own.
func (n *node) real(account uint32) {
	o := ofAccount{uid: account}
	n.Proc, n.Processes, n.Users = process.FS{}, o, o
}

type ofAccount struct {
	starter.Users
	uid uint32
}

func (o ofAccount) OfUser(pid int) bool {
	a, err := o.AccountOf(pid)
	return err == nil && a.Known && a.UID == o.uid
}

// silent is a file system of an account (FUSE) that answers nothing but its start.
type silent struct {
	dir string
	// asked has a request after the start.
	asked chan struct{}
	end   func()
}

func newSilent(t *testing.T, account uint32) silent {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	s := silent{dir: t.TempDir(), asked: make(chan struct{}, 1)}
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} { // made for root alone
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, account, account)
	if err := unix.Mount("gpuslot-test", s.dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	s.end = func() { _, _ = unix.Unmount(s.dir, unix.MNT_FORCE), unix.Unmount(s.dir, unix.MNT_DETACH) }
	t.Cleanup(s.end)
	request := make([]byte, 1<<17)
	if _, err := unix.Read(fd, request); err != nil {
		t.Fatal(err)
	}
	// struct fuse_out_header, then struct fuse_init_out of version 7.23 (linux/fuse.h).
	answer := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], request[8:16]) // unique
	binary.NativeEndian.PutUint32(answer[16:], 7)
	binary.NativeEndian.PutUint32(answer[20:], 23)
	binary.NativeEndian.PutUint32(answer[16+20:], 4096) // max_write
	if _, err := unix.Write(fd, answer); err != nil {
		t.Fatal(err)
	}
	go func() { // who waits for a request that was taken is ended by no signal
		for {
			if _, err := unix.Read(fd, request); err != nil {
				return
			}
			select {
			case s.asked <- struct{}{}:
			default:
			}
		}
	}()
	return s
}

// TestAbort: a process that waits for its account's own file system stays after it was killed. After some kills that
// file system is ended, so that the process ends, and no other account's is.
func TestAbort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root: run this test as root")
	}
	if err := unix.Access("/sys/fs/fuse/connections", unix.X_OK); err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	if text, err := os.ReadFile("/proc/self/mounts"); err != nil || !strings.Contains(string(text), " /sys/fs/fuse/connections fusectl ") {
		if err := unix.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, ""); err != nil {
			t.Skipf("the kernel does not list file systems of users: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount("/sys/fs/fuse/connections", unix.MNT_DETACH) })
	}
	const account, other = 61003, 61004
	n := newNode(t)
	n.real(account)
	waits := func(on silent) process.ID {
		c := exec.Command("stat", filepath.Join(on.dir, "x"))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: account, Gid: account}}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { on.end(); _, _ = c.Process.Kill(), c.Wait() })
		<-on.asked
		s, err := n.Processes.Stat(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	id := waits(newSilent(t, account))
	others := waits(newSilent(t, other))
	beside := exec.Command("sleep", "1000")
	beside.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: account, Gid: account}}
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = beside.Process.Kill(), beside.Wait() }()
	sleeps, err := n.Processes.Stat(beside.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	if n.abort(uuid(0), sleeps.ID); log.Len() > 0 {
		t.Errorf("for one that waits for something else: %s", &log)
	}
	for range 2 * abortAfter {
		n.KillOutside(uuid(0), []process.ID{id})
		n.Wait()
	}
	n.ended(t, id)
	if s, err := n.Processes.Stat(others.PID); err != nil || !s.Shows(others) {
		t.Errorf("one that waits for another account's file system: %+v, %v", s, err)
	}
}

// ended waits until a process has ended that was killed.
func (n *node) ended(t *testing.T, id process.ID) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if s, err := n.Processes.Stat(id.PID); err != nil || !s.Shows(id) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it still waits")
		}
	}
}

// wantKilled ends a process, and wants it to have been killed before.
func wantKilled(t *testing.T, c *exec.Cmd) {
	t.Helper()
	_ = c.Process.Signal(syscall.SIGTERM)
	if c.Wait() == nil || c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process: %v", c.ProcessState)
	}
}

// TestKillRefused: a process is killed that is not read because of others of its account, which hang.
func TestKillRefused(t *testing.T) {
	n := newNode(t)
	const session = "/user.slice/user-4001.slice/session-1.scope"
	hung := []int{}
	for pid := 300; pid < 303; pid++ { // each takes a second of two
		n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "hangs", UID: 4001, Cgroup: session})
		n.proc.Hold(pid, "stat")
		hung = append(hung, pid)
	}
	for _, pid := range hung {
		if _, err := n.Processes.Stat(pid); !errors.Is(err, process.ErrHeld) {
			t.Fatal(err)
		}
	}
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	id := process.ID{PID: c.Process.Pid}
	n.proc.Add(proctree.Process{PID: id.PID, Parent: 1, Comm: "sleep", UID: 4001, Cgroup: session})
	if _, err := n.Processes.Stat(id.PID); !errors.Is(err, process.ErrRefused) {
		t.Fatal(err)
	}
	n.KillOutside(uuid(0), []process.ID{id})
	n.Wait()
	wantKilled(t, c)
}

// TestAbortUnanswered: a process that the kernel does not answer (process.ErrHeld) may wait for its account's file
// system. It is killed, and those file systems end.
func TestAbortUnanswered(t *testing.T) {
	n := newNode(t)
	const session = "/user.slice/user-1000.slice/session-1.scope"
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	id := process.ID{PID: c.Process.Pid}
	n.proc.Add(proctree.Process{PID: id.PID, Parent: 1, Comm: "sleep", UID: 1000, Cgroup: session})
	n.proc.Hold(id.PID, "stat")
	stack := filepath.Join(n.proc.Root, fmt.Sprint(id.PID), "task/1/stack")
	if err := errors.Join(os.MkdirAll(filepath.Dir(stack), 0o755), os.WriteFile(stack, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	n.proc.Hold(id.PID, "task/1/stack")
	var log strings.Builder
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.FUSE = t.TempDir()
	for range abortAfter {
		n.KillOutside(uuid(0), []process.ID{id})
		n.Wait()
	}
	if got := log.String(); strings.Count(got, "jobs, was killed") != 1 || !strings.Contains(got, "ended=0") {
		t.Errorf("logged: %s", got)
	}
	wantKilled(t, c)
}
