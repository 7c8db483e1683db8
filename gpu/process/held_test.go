package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldTree is a /proc in which processes can be made that the kernel does not answer.
type heldTree struct {
	FS
	t    *testing.T
	held map[int]bool
}

func newHeldTree(t *testing.T) heldTree {
	h := heldTree{FS{Root: t.TempDir()}, t, map[int]bool{}}
	t.Cleanup(func() { h.none() })
	return h
}

func (h heldTree) add(pid int, uid uint32) {
	h.t.Helper()
	err := os.MkdirAll(dirOf(h.FS, pid), 0o755)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(dirOf(h.FS, pid), int(uid), int(uid)))
	}
	for name, text := range map[string]string{
		"stat":   fmt.Sprintf("%d (x) S 1 %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, pid, pid, pid),
		"status": fmt.Sprintf("Name:\tx\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid),
	} {
		err = errors.Join(err, os.WriteFile(h.Path(pid, name), []byte(text), 0o644))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// hold makes a process that is not answered; answer ends that.
func (h heldTree) hold(pid int, uid uint32) (answer func()) {
	h.t.Helper()
	h.add(pid, uid)
	h.held[pid] = true
	file := h.Path(pid, "stat")
	text, err := os.ReadFile(file)
	if err = errors.Join(err, os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		h.t.Fatal(err)
	}
	answer = func() {
		w, err := os.OpenFile(file, os.O_RDWR, 0)
		if err == nil {
			_ = os.Remove(file)
			_, err = w.Write(text)
			err = errors.Join(err, os.WriteFile(file, text, 0o644), w.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			h.t.Error(err)
		}
	}
	h.t.Cleanup(answer)
	return answer
}

// none waits until all reads have come back: other tests' processes are of the same accounts.
func (h heldTree) none() {
	h.t.Helper()
	for pid := range h.held {
		for late := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := h.Stat(pid); !errors.Is(err, ErrHeld) {
				break
			}
			if time.Now().After(late) {
				h.t.Fatalf("process %d is not answered", pid)
			}
		}
	}
}

// TestHeld: a process that the kernel does not answer is known as such, and is not asked again before the first read has
// come back. Others are answered.
func TestHeld(t *testing.T) {
	h := newHeldTree(t)
	h.add(301, 1000)
	answer := h.hold(300, 1000)
	for range 3 {
		_, err := h.Stat(300)
		if !errors.Is(err, ErrHeld) || Gone(err) || !strings.Contains(err.Error(), "/300, of uid 1000: ") {
			t.Fatal(err)
		}
	}
	if s, err := h.Stat(301); err != nil || s.PID != 301 {
		t.Error(s, err)
	}
	for what, runs := range map[string]bool{
		"with its start": h.Runs(ID{300, 300}), "by its PID": h.Runs(ID{300, 0}), "another": h.Runs(ID{301, 301}),
	} {
		if !runs {
			t.Errorf("a process that may run, %s, has ended", what)
		}
	}
	if h.Runs(ID{301, 0}) {
		t.Error("a process is known by its PID alone")
	}
	if id, ok := NewRunning(h.FS).Now(300); !ok || id != (ID{PID: 300}) {
		t.Error(id, ok)
	}
	if uids, err := h.UIDs(300); err != nil || uids.Real != 1000 {
		t.Error(uids, err)
	}
	line := []Stat{{ID: ID{301, 301}, Parent: 1}, {ID: ID{300, 300}, Parent: 1}}
	if !h.Unchanged(line[:1]) || h.Unchanged(line) {
		t.Error("what is not known is unchanged")
	}
	if _, err := Line(h.FS, 300, 4); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	answer()
	h.none()
	if s, err := h.Stat(300); err != nil || s.PID != 300 {
		t.Error(s, err)
	}
}

// TestHeldAbove: in a line of processes the one that is not answered is the one above.
func TestHeldAbove(t *testing.T) {
	h := newHeldTree(t)
	h.add(301, 1000)
	text := strings.Replace(mustRead(t, h.Path(301, "stat")), "S 1 ", "S 300 ", 1)
	if err := os.WriteFile(h.Path(301, "stat"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.hold(300, 1001)
	if _, err := Line(h.FS, 301, 4); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "/300, of uid 1001") {
		t.Error(err)
	}
	if s, err := h.Stat(301); err != nil || s.Parent != 300 {
		t.Error(s, err)
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHeldReads: no read of a process waits for one that is not answered.
func TestHeldReads(t *testing.T) {
	all := func(File) bool { return true }
	var reads sync.WaitGroup
	defer reads.Wait()
	for name, read := range map[string]func(FS) error{
		"Stat":      func(fs FS) error { _, err := fs.Stat(300); return err },
		"UIDs":      func(fs FS) error { _, err := fs.UIDs(300); return err },
		"Exe":       func(fs FS) error { _, err := fs.Exe(300); return err },
		"ExeFile":   func(fs FS) error { _, err := fs.ExeFile(300); return err },
		"Args":      func(fs FS) error { _, err := fs.Args(300); return err },
		"Environ":   func(fs FS) error { _, err := fs.Environ(300); return err },
		"readlink":  func(fs FS) error { _, err := readlink(fs, 300, "ns/pid"); return err },
		"Stacks":    func(fs FS) error { _, err := Stacks(fs, 300); return err },
		"Line":      func(fs FS) error { _, err := Line(fs, 300, 4); return err },
		"Opens":     func(fs FS) error { _, _, err := Opens(fs, 300, 100, all); return err },
		"HandlesOf": func(fs FS) error { _, _, err := HandlesOf(fs, 300, 100, all); return err },
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "300")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f := mountFUSE(t, dir, nil)
		f.silent.Store(true)
		reads.Go(func() {
			defer f.end()
			done := make(chan error, 1)
			go func() { done <- read(FS{Root: root}) }()
			select {
			case err := <-done:
				if !errors.Is(err, ErrHeld) {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s waits", name)
			}
		})
	}
}

// TestOwner: whose a process is, is known also where its files in /proc are root's because it may not be traced. With
// 65,536 groups the kernel takes long over its accounts: they are read some times.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the process has another account")
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "sleep")
	text := mustRead(t, "/bin/sleep")
	const unreadable = 0o711
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, []byte(text), unreadable)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 4321, Gid: 1234, Groups: slices.Repeat([]uint32{5}, 65536)}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	fs := FS{}
	if files, err := statFile(fs.Path(c.Process.Pid, "status")); files.UID != 0 || err != nil {
		t.Error("it may be traced:", files, err)
	}
	if of, err := fs.Owner(c.Process.Pid); of != (Owner{4321, 1234}) || err != nil {
		t.Errorf("%+v, %v", of, err)
	}
	uids, err := fs.UIDs(c.Process.Pid)
	if uids != (UIDs{4321, 4321, 4321, 4321}) || err != nil {
		t.Errorf("%+v, %v", uids, err)
	}
	for late := time.Now().Add(5 * time.Minute); !errors.Is(err, ErrNotAsked); _, err = fs.UIDs(c.Process.Pid) {
		if time.Now().After(late) || err != nil {
			t.Fatalf("it is read for ever: %v", err)
		}
	}
}

// TestHeldInExec: a process hangs in exec(2), because its file system does not answer. Reads of it do not wait.
// Without a deadline kcmp(2) waits for it on all kernels, and /proc on newer ones.
func TestHeldInExec(t *testing.T) {
	h := newHeldTree(t)
	dir := t.TempDir()
	f := mountFUSE(t, dir, []byte("x"))
	f.noFlush.Store(true)
	// Perl opens files for itself alone (close-on-exec).
	c := exec.Command("perl", "-e", `open F, "<", $ARGV[0] or die $!; exec "sleep", "3600"`, filepath.Join(dir, "p"))
	if err := c.Start(); err != nil {
		t.Skipf("perl: %v", err)
	}
	defer func() { _ = c.Process.Kill(); f.end(); _ = c.Wait() }()
	select {
	case <-f.flush:
	case <-time.After(5 * time.Minute):
		t.Fatal("exec did not close the file")
	}
	pid := c.Process.Pid
	done := make(chan error, 1)
	go func() {
		_, err := FS{}.Stat(pid)
		_, no := FS{}.Exe(pid)
		_, _, opens := Opens(FS{}, pid, 100, func(File) bool { return true })
		t.Logf("stat: %v; exe: %v; files: %v", err, no, opens)
		done <- opens
	}()
	select {
	case err := <-done:
		if !errors.Is(err, ErrHeld) {
			t.Errorf("files: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("reads of the process wait")
	}
	f.end()
	h.none()
	for late := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := FS{}.Stat(pid)
		if err == nil && s.Comm == "sleep" {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("after the end of the file system: %+v, %v", s, err)
		}
	}
}
