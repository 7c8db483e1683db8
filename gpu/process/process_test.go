package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leaves is a program whose first thread ends; it runs on in another until its
// standard input ends.
const leaves = `#include <pthread.h>
#include <unistd.h>
static void *rest(void *unused) { char b; while (read(0, &b, 1) > 0) ; _exit(0); }
int main(void) { pthread_t t; pthread_create(&t, 0, rest, 0); pthread_exit(0); }
`

// leaderless starts that program and waits until its first thread is a zombie.
func leaderless(t *testing.T) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not there to build a program whose first thread ends")
	}
	program := filepath.Join(t.TempDir(), "leaves")
	build := exec.Command("gcc", "-pthread", "-x", "c", "-o", program, "-")
	build.Stdin = bytes.NewReader([]byte(leaves))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitForState(t, cmd.Process.Pid, func(s Stat) bool { return s.State == 'Z' })
	return cmd
}

func waitForState(t *testing.T, pid int, is func(Stat) bool) Stat {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p, err := FS{}.Stat(pid)
		if err == nil && is(p) {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("process %d did not get there: %+v, %v", pid, p, err)
		}
	}
}

// TestFirstThreadEnded: pthread_exit in main leaves a process that is a zombie
// by its state. It runs on, and its cgroup and its mounts are read.
func TestFirstThreadEnded(t *testing.T) {
	cmd := leaderless(t)
	pid, fs := cmd.Process.Pid, FS{}
	s, err := fs.Stat(pid)
	if err != nil || s.Ended() || !fs.Runs(s.ID) {
		t.Errorf("a process that runs in its second thread counts as ended: %+v, %v", s, err)
	}
	own, errOwn := fs.Cgroup(os.Getpid())
	its, err := fs.Cgroup(pid)
	if err != nil || errOwn != nil || !bytes.Equal(own, its) {
		t.Errorf("its cgroup is not this test's: %q, %v; %q, %v", its, err, own, errOwn)
	}
	if _, err := mountsOf(fs, pid); err != nil {
		t.Errorf("its mounts are not known: %v", err)
	}
	pipe := func(f File) bool { return f.Mode&unix.S_IFMT == unix.S_IFIFO }
	if has, _, err := Opens(fs, pid, 100, pipe); len(has) == 0 || err != nil {
		t.Errorf("what it has open is not known: %v, %v", has, err)
	}
	program := func(f File) bool { return f.Mode&unix.S_IFMT == unix.S_IFREG && f.Mode&0o100 != 0 }
	if has, _, err := Opens(fs, pid, 100, program); len(has) > 0 || err != nil {
		t.Errorf("it has programs open: %v, %v", has, err)
	}
	if has, err := Uses(fs, pid, 100, time.Minute, program); len(has) == 0 || err != nil {
		t.Errorf("what it has mapped is not known: %v, %v", has, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if s = waitForState(t, pid, func(s Stat) bool { return s.Threads <= 1 }); !s.Ended() || fs.Runs(s.ID) {
		t.Errorf("a process without a thread that runs counts as alive: %+v", s)
	}
}

// TestThreadThatRuns: with cgroup v1 a first thread that has ended is shown in the root.
func TestThreadThatRuns(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 10 11\n"
	const slice = "4:memory:/htcondor/condor_var_lib_condor_execute_slot3_1@pool.test\n0::/\n"
	root := t.TempDir()
	for name, text := range map[string]string{
		"700/stat": "700 (job) Z" + rest, "700/cgroup": "0::/\n", "700/comm": "job\n",
		"700/task/700/stat": "700 (job) Z" + rest,
		"700/task/701/stat": "701 (job) Z" + rest,
		"700/task/697/stat": "", "700/task/698/stat": "698 (job) X" + rest, "700/task/699/stat": "699 (job) x" + rest,
		"900/stat": "900 (job) S" + rest, "900/cgroup": slice, "900/task/901/stat": "901 (job) S" + rest,
		"700/task/702/stat": "702 (job) S" + rest, "700/task/702/cgroup": slice,
		"800/stat":          strings.Replace("800 (job) Z"+rest, " 3 0 987654", " 1 0 987654", 1),
		"800/task/800/stat": "800 (job) Z" + rest,
	} {
		put(t, filepath.Join(root, name), text)
	}
	fs := FS{Root: root}
	if got, err := fs.Cgroup(700); string(got) != slice || err != nil {
		t.Errorf("its cgroup is %q, %v", got, err)
	}
	if got, err := fs.Cgroup(900); string(got) != slice || err != nil {
		t.Errorf("of a process whose first thread runs: %q, %v", got, err)
	}
	if _, err := fs.Cgroup(800); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an ended process has a cgroup: %v", err)
	}
}

// TestOpens: a device counts by its number, under every name, and a file of the device's name does not.
// What cannot be read may be open.
func TestOpens(t *testing.T) {
	root := t.TempDir()
	fs := FS{Root: root}
	put(t, filepath.Join(root, "1/task/1/fd/.keep"), "")
	put(t, filepath.Join(root, "2/task/2/fd/.keep"), "")
	put(t, filepath.Join(root, "dev/null"), "")
	put(t, filepath.Join(root, "3/task/3/fd"), "") // no directory
	put(t, filepath.Join(root, "5/task"), "")
	other := filepath.Join(root, "other")
	for name, to := range map[string]string{
		"other": "/dev/null", "1/task/1/fd/7": other, "1/task/1/fd/8": "/dev/null", "1/task/1/fd/9": "/dev/zero", "1/task/1/fd/10": "/dev/full",
		"2/task/2/fd/7": filepath.Join(root, "dev/null"),
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	null, zero := unix.Mkdev(1, 3), unix.Mkdev(1, 5)
	for pid, want := range map[int][]uint64{1: {null, zero}, 2: nil, 3: nil, 4: nil, 5: nil} {
		got, _, err := Opens(fs, pid, 100, func(f File) bool { return f.Device == null || f.Device == zero })
		slices.Sort(got)
		if unread := pid == 3 || pid == 5; !slices.Equal(got, want) || (err != nil) != unread {
			t.Errorf("%d: %v, %v; want %v", pid, got, err, want)
		}
	}
}

// TestListsThatCannotBeRead: unknown is not empty.
func TestListsThatCannotBeRead(t *testing.T) {
	root := t.TempDir()
	fs := FS{Root: filepath.Join(root, "none")}
	if pids, err := fs.PIDs(); err == nil {
		t.Errorf("processes %v", pids)
	}
	fs.Root = root
	put(t, filepath.Join(root, "5/task"), "") // no directory
	put(t, filepath.Join(root, "6/task/6/children/none"), "")
	for _, pid := range []int{5, 6} {
		if children, err := fs.Children(pid); err == nil {
			t.Errorf("children of %d: %v", pid, children)
		}
	}
}

// TestRunsUnread: a process whose entry cannot be read may run, and none is taken for it. One that
// is gone does not.
func TestRunsUnread(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	put(t, filepath.Join(fs.Root, "700/stat"), "no line of the kernel's")
	stat := filepath.Join(fs.Root, "800/stat")
	if err := errors.Join(os.Mkdir(filepath.Dir(stat), 0o755), os.Symlink(stat, stat)); err != nil { // ELOOP
		t.Fatal(err)
	}
	for _, pid := range []int{700, 800} {
		id := ID{pid, 1}
		if now, err := fs.Stat(pid); !fs.Runs(id) || now.Shows(id) || err == nil {
			t.Errorf("process %d runs: %t, is shown: %+v, %v", pid, fs.Runs(id), now, err)
		}
	}
	if fs.Runs(ID{900, 1}) || fs.Runs(ID{PID: 700}) {
		t.Error("a process runs that is gone, or that has no start time")
	}
	if (Stat{}).Shows(ID{}) || !(Stat{ID: ID{PID: 1}}).Shows(ID{PID: 1}) {
		t.Error("a Stat that could not be read shows a process, or the first process is not shown")
	}
	if Gone(nil) || !Gone(fmt.Errorf("read: %w", unix.ESRCH)) {
		t.Error("what says that a process is gone")
	}
}

func TestRuns(t *testing.T) {
	fs := FS{}
	s, err := fs.Stat(os.Getpid())
	if err != nil || s.Parent != os.Getppid() || s.Started == 0 || s.State != 'R' && s.State != 'S' {
		t.Fatalf("this test is %+v, %v", s, err)
	}
	if again := (ID{s.PID, s.Started + 1}); !fs.Runs(s.ID) || fs.Runs(again) || fs.Runs(ID{PID: s.PID}) {
		t.Error("a PID that is used again is the same process, or this one is not")
	}
	if _, err := fs.Stat(1 << 30); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a process that is not there: %v", err)
	}
	if pids, err := fs.PIDs(); err != nil || !slices.Contains(pids, s.PID) || !slices.IsSorted(pids) {
		t.Errorf("the processes are %v", pids)
	}
	if uids, err := fs.UIDs(s.PID); err != nil || int(uids.Real) != os.Getuid() || int(uids.Effective) != os.Geteuid() {
		t.Errorf("its accounts are %+v, %v", uids, err)
	}
	if args, err := fs.Args(s.PID); err != nil || !slices.Equal(args, os.Args) {
		t.Errorf("its arguments are %q, %v; want %q", args, err, os.Args)
	}
}

// TestAccounts: the accounts of another process are its own; of one that is not there they are not known.
func TestAccounts(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	put(t, filepath.Join(fs.Root, "7/status"), "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n")
	uids, err := fs.UIDs(7)
	if want := (UIDs{1, 2, 3, 4}); uids != want || err != nil {
		t.Errorf("%+v, %v", uids, err)
	}
	_, err = fs.UIDs(8)
	if _, no := fs.Owner(8); !Gone(err) || !Gone(no) {
		t.Errorf("of none: %v, %v", err, no)
	}
	for _, text := range []string{"", "Uid:\t1\t2\t3\n", "Uid:\t1\t2\t3\tx\n", "Uid:\t1\t2\t3\t4294967296\n", "Uid:\nUid:\t1\t2\t3\t4\n"} {
		if got, err := parseUIDs([]byte(text)); err == nil || got != (UIDs{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestClosesFiles: nothing stays open until the next collection, of which a busy node has few.
func TestClosesFiles(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before := open()
	fs, pid := FS{}, os.Getpid()
	for name, look := range map[string]func() error{
		"the locks":    func() error { LockHolder(f); return nil },
		"the mounts":   func() error { fs.Hiding(map[int]string{pid: "/"}); return nil },
		"the process":  func() error { _, err := fs.Stat(pid); return err },
		"its accounts": func() error { _, err := fs.UIDs(pid); return err },
		"its cgroup":   func() error { _, err := fs.Cgroup(pid); return err },
		"its children": func() error { _, err := fs.Children(pid); return err },
		"its files":    func() error { _, _, err := Opens(fs, pid, 1<<16, func(File) bool { return false }); return err },
		"all":          func() error { _, err := fs.PIDs(); return err },
	} {
		if err := look(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now := open(); now > before {
			t.Errorf("%s: %d files are open, %d before", name, now, before)
			before = now
		}
	}
}

// TestReadAll: a file is read to its end, however long, and its texts are told apart.
func TestReadAll(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	name := filepath.Join(fs.Root, "7/cmdline")
	for _, size := range []int{0, 1, 1023, 1024, 1025, 2048, 5000} {
		put(t, name, strings.Repeat("x", size))
		if b, err := readAll(name); err != nil || len(b) != size {
			t.Errorf("%d bytes of %d, %v", len(b), size, err)
		}
	}
	for text, want := range map[string][]string{"": nil, "x": {"x"}, "x\x00": {"x"}, "x\x00\x00y\x00": {"x", "", "y"}} {
		put(t, name, text)
		if got, err := fs.Args(7); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if (File{Dev: 1, Inode: 2}).is(File{Dev: 1, Inode: 3}) || (File{Dev: 1, Inode: 2}).is(File{Dev: 2, Inode: 2}) {
		t.Error("another file is the same one")
	}
}

func TestParseStat(t *testing.T) {
	const all = "42 (a) S (b)) T 1 43 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 987654 10 11 18446744073709551615\n"
	want := Stat{ID: ID{42, 987654}, Parent: 1, Group: 43, Session: 7, State: 'T', Threads: 9, Comm: "a) S (b)"}
	if got, err := parseStat([]byte(all)); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 2 18 4711\n"
	for text, ended := range map[string]bool{
		"7 (a) Z" + rest: false, // its first thread alone has ended
		"7 (a) Z" + strings.Replace(rest, " 2 18 ", " 1 18 ", 1): true,
		"7 (a) S" + strings.Replace(rest, " 2 18 ", " 1 18 ", 1): false,
		"7 (a) X" + rest: true,
		"7 (a) x" + rest: true,
		"1 () S" + strings.Replace(rest, " 1 2 ", " 0 2 ", 1):    false, // the kernel's own
		"7 (a) S" + strings.Replace(rest, " 2 18 ", " 0 18 ", 1): false,
	} {
		if s, err := parseStat([]byte(text)); err != nil || s.Started != 4711 || s.Ended() != ended {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "7 (a", "7 (a) S 1 2 3", "7 (a) S 1 2 3 4 5 6\x00 7", "7 (a) SS" + rest, "x (a) S" + rest,
		"7 (a) S" + strings.Replace(rest, "4711", "-1", 1), "7 (a) S" + strings.Replace(rest, " 2 18 ", " -2 18 ", 1)} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

// FuzzStat: what is accepted has 22 fields, stands in the line and is of a process.
func FuzzStat(f *testing.F) {
	f.Add([]byte("1000 (condor_starter) S 900 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1 1 1 0\n"))
	f.Add([]byte("7 (a) b) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9"))
	f.Add([]byte("7 (a b) c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"))
	f.Add([]byte("7 (a) Z"))
	f.Add([]byte("42 () S) S"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil {
			return
		}
		if s.PID < 1 || s.Parent < 0 || s.Threads < 0 || !strings.Contains(string(b), "("+s.Comm+")") {
			t.Errorf("parseStat(%q) = %+v", b, s)
		}
		words := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(words) < 20 || string(words[0]) != string([]byte{s.State}) ||
			string(bytes.TrimLeft(words[19], "0")) != strings.TrimLeft(strconv.FormatUint(s.Started, 10), "0") {
			t.Errorf("%q is said to be %+v", b, s)
		}
	})
}

func FuzzUIDs(f *testing.F) {
	f.Add([]byte("Name:\tx\nUid:\t0\t64\t0\t64\nGid:\t0\t0\t0\t0\n"))
	f.Add([]byte("Uid:\t-1\t0\t0\t0\n"))
	f.Add([]byte("Name:\tUid:\t0\t0\t0\t0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseUIDs(b); err == nil && !strings.HasPrefix("\n"+string(b), "\nUid:") && !strings.Contains(string(b), "\nUid:") {
			t.Errorf("parseUIDs(%q) took another line", b)
		}
	})
}

// FuzzUnitOf: a unit is a part of a path of systemd's own tree.
func FuzzUnitOf(f *testing.F) {
	f.Add("4:memory:/x.scope\n1:name=systemd:/system.slice/condor.service/job\n0::/\n")
	f.Add("0::/a.service/b.scope")
	f.Fuzz(func(t *testing.T, text string) {
		unit := unitOf(text)
		if unit == "" {
			return
		}
		if strings.ContainsAny(unit, "/\n") || !strings.Contains(text, unit) || !strings.HasSuffix(unit, ".service") && !strings.HasSuffix(unit, ".scope") {
			t.Errorf("%q from %q", unit, text)
		}
	})
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
