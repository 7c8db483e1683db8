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
	r := NewRunning(FS{Root: t.TempDir()})
	r.Add(ID{os.Getpid(), 1})
	r.Refresh()
	if _, ok := r.Find(os.Getpid()); ok {
		t.Error("a process of another /proc is followed")
	}
}
