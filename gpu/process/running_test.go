package process

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRunning(t *testing.T) {
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	pid := c.Process.Pid
	s, err := FS{}.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunning(FS{})
	if _, ok := r.Find(pid); ok {
		t.Error("found before it was added")
	}
	r.Add(ID{pid, s.Started + 1})
	if _, ok := r.Find(pid); ok {
		t.Error("a process that had the PID before is found")
	}
	r.Add(s.ID)
	r.Add(s.ID) // again: one descriptor
	r.Refresh()
	if id, ok := r.Find(pid); !ok || id != s.ID {
		t.Errorf("it runs, and is found as %v, %v", id, ok)
	}
	r.Keep(func(id ID) bool { return id == s.ID })
	if _, ok := r.Find(pid); !ok {
		t.Error("what is kept is not found")
	}

	_ = c.Process.Kill()
	// WNOWAIT: it stays a zombie, whose PID no other process gets.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	r.Refresh()
	if _, ok := r.Find(pid); ok {
		t.Error("it has ended, and is found")
	}
	_ = c.Wait()
	ended = true
}

// Nothing stays open for a process that is not followed any more.
func TestRunningCloses(t *testing.T) {
	s, err := FS{}.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunning(FS{})
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	r.Add(s.ID)
	before := open()
	for range 10 {
		r.Add(s.ID)
	}
	r.Add(ID{s.PID, s.Started + 1})
	r.Keep(func(ID) bool { return false })
	if _, ok := r.Find(s.PID); ok {
		t.Error("it is not kept, and is found")
	}
	if now := open(); now > before {
		t.Errorf("%d files are open, %d before", now, before)
	}
}

// PIDs of another /proc are those of no system call.
func TestRunningElsewhere(t *testing.T) {
	s, err := FS{}.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fs := FS{Root: t.TempDir()}
	relate(t, fs.Root, s.PID, s.Parent, int(s.Started), "", "")
	r := NewRunning(fs)
	r.Add(s.ID)
	r.Refresh()
	if _, ok := r.Find(os.Getpid()); ok {
		t.Error("a process of another /proc is followed")
	}
}

// TestRunningBound: so many processes are followed and no more, and none when the kernel does not tell of their ends.
func TestRunningBound(t *testing.T) {
	s, err := FS{}.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunning(FS{})
	for i := range mostRunning {
		r.followed[-i] = followed{pidfd: -1}
	}
	if r.Add(s.ID); len(r.followed) != mostRunning {
		t.Error("one more is followed")
	}
	r.drop(-1)
	if r.Add(s.ID); len(r.followed) != mostRunning {
		t.Error("one fewer is followed")
	}
	if err := unix.Close(r.epoll); err != nil {
		t.Fatal(err)
	}
	if r.Refresh(); len(r.followed) != 0 {
		t.Errorf("%d processes are followed", len(r.followed))
	}
}

// TestRunningMany: all processes that have ended are dropped at once.
func TestRunningMany(t *testing.T) {
	r := NewRunning(FS{})
	var ended []*exec.Cmd
	for range 70 {
		c := exec.Command("sleep", "infinity")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		ended = append(ended, c)
		s, err := FS{}.Stat(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		r.Add(s.ID)
	}
	if len(r.followed) != len(ended) {
		t.Errorf("%d processes are followed", len(r.followed))
	}
	for _, c := range ended {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if r.Refresh(); len(r.followed) != 0 {
		t.Errorf("%d processes that have ended are followed", len(r.followed))
	}
}
