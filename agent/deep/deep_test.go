package deep

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes directories below each other, with a path that is too long for the kernel. The process with
// PID 200 is listed in the last of them.
func tree(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	at, err := unix.Open(top, unix.O_DIRECTORY, 0)
	for range 30 {
		if err != nil {
			t.Fatal(err)
		}
		name, above := strings.Repeat("d", 200), at
		if err = errors.Join(unix.Mkdirat(above, name, 0o755), unix.Mkdirat(above, "beside", 0o755)); err == nil {
			at, err = unix.Openat(above, name, unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(above)
	}
	list, err := unix.Openat(at, "cgroup.procs", unix.O_CREAT|unix.O_WRONLY, 0o644)
	if err == nil {
		_, err = unix.Write(list, []byte("100\n200\n"))
	}
	if err := errors.Join(err, unix.Close(list), unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	return top
}

// holds is Find in one slice.
func holds(slice string, pid int) (bool, error) {
	f := Into([]string{slice}).Find(pid, time.Hour)
	return f.In == slice, f.Err
}

// TestHolds: a process is found however deep it is, and in no tree in which it is not.
func TestHolds(t *testing.T) {
	top := tree(t)
	for pid, want := range map[int]bool{100: true, 200: true, 20: false} {
		if got, err := holds(top, pid); err != nil || got != want {
			t.Errorf("process %d: %t, %v", pid, got, err)
		}
	}
	if its, err := holds(filepath.Join(top, "none"), 200); its || err != nil {
		t.Errorf("a cgroup that has ended holds a process: %t, %v", its, err)
	}
	for _, name := range []string{"cgroup.procs", "deeper"} { // what cannot be looked into
		at := filepath.Join(t.TempDir(), "top")
		if name == "deeper" {
			if err := os.Symlink(at, at); err != nil {
				t.Fatal(err)
			}
		} else if err := os.MkdirAll(filepath.Join(at, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if its, err := holds(at, 200); its || err == nil {
			t.Errorf("%s cannot be read: %t, %v", name, its, err)
		}
	}
}

// TestRemove: a tree goes with all in it, and stays where a part cannot go or the context has ended.
func TestRemove(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("directories become root's: run this test as root")
	}
	top := tree(t)
	if err := Remove(t.Context(), top); err == nil {
		t.Error("a directory with a file was removed")
	}
	empty := filepath.Join(t.TempDir(), "top")
	if err := os.MkdirAll(filepath.Join(empty, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Remove(ended, empty); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if err := Remove(t.Context(), empty); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestRemoveForbidsFirst: no cgroup can be made below one that is being removed, and if it stays, they can again. A
// pipe stands for the kernel's file. It also keeps the directory from going.
func TestRemoveForbidsFirst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("directories become root's: run this test as root")
	}
	top := t.TempDir()
	file := filepath.Join(top, mostDescendants)
	if err := errors.Join(unix.Mkfifo(file, 0o600), os.Mkdir(filepath.Join(top, "child"), 0o755)); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // open all the time: each write finds a reader
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	ended := make(chan error)
	go func() { ended <- Remove(context.Background(), top) }()
	written := make([]byte, len("0max"))
	if _, err := io.ReadFull(pipe, written); err != nil || string(written) != "0max" {
		t.Errorf("written: %q, %v", written, err)
	}
	if err := <-ended; err == nil {
		t.Error("a directory with a file was removed")
	}
	if _, err := os.Lstat(filepath.Join(top, "child")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the child: %v", err)
	}
}
