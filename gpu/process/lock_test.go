package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is also the child that holds a lock, or hides an open device, until its input ends.
func TestMain(m *testing.M) {
	if device := os.Getenv("HIDE_DEVICE"); device != "" {
		fmt.Println("hidden", hide(device))
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	path := os.Getenv("LOCK_THIS")
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	fmt.Println("locked", err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestLockHolder(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h, ok := LockHolder(f); ok {
		t.Errorf("a file without a lock is locked by %+v", h)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), "LOCK_THIS="+f.Name())
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, _ := child.StdinPipe()
	out, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer in.Close()
	defer func() { _ = child.Process.Signal(syscall.SIGCONT) }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	h, ok := LockHolder(f)
	if !ok || h.PID != child.Process.Pid || h.Program != filepath.Base(exe) || strings.IndexByte("RS", h.State) < 0 {
		t.Errorf("the holder is %+v, %v; want process %d", h, ok, child.Process.Pid)
	}
	_ = child.Process.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(2 * time.Minute); h.State != 'T'; time.Sleep(10 * time.Millisecond) {
		if h, _ = LockHolder(f); time.Now().After(end) {
			t.Fatalf("a suspended holder is %+v", h)
		}
	}
	if want := fmt.Sprintf("is suspended (state T): kill -CONT %d", h.PID); !strings.Contains(h.Advice(), want) {
		t.Errorf("%s; want %q in it", h.Advice(), want)
	}
}

// TestHangingThread: the first thread of a killed process has ended while another hangs in
// the driver. A thread in any other state says nothing about the process.
func TestHangingThread(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 987654 10 11\n"
	for _, c := range []struct{ process, thread, exe, want string }{
		{"Z", "D", "", `process 7 ("gpuslotd") hangs in the kernel (state D)`},
		{"T", "S", "", `process 7 ("gpuslotd") is suspended (state T)`},
		{"S", "S", "/usr/sbin/other (deleted)", `process 7 ("other") runs (state S)`},
	} {
		dir := t.TempDir()
		if c.exe != "" {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "7"), 0o755), os.Symlink(c.exe, filepath.Join(dir, "7/exe"))); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{
			"7/stat": "7 (a) b) " + c.process + rest, "7/task/7/stat": "7 (a) b) " + c.process + rest,
			"7/task/9/stat": "9 (x) " + c.thread + rest, "7/comm": "gpuslotd\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if h := (FS{Root: dir}).holder(7); !strings.HasPrefix(h.Advice(), c.want) {
			t.Errorf("%s; want %q", h.Advice(), c.want)
		}
	}
}

// TestLocksOfOthers: locks on files of other file systems count for nothing, and however
// many there are, the list is read up to its bound.
func TestLocksOfOthers(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := statFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	line := func(pid int, device string) string {
		return fmt.Sprintf("1: FLOCK  ADVISORY  WRITE %d %s:%d 0 EOF\n", pid, device, file.Inode)
	}
	for name, c := range map[string]struct {
		locks string
		want  int
	}{
		"another file system": {line(7, "00:18") + line(8, "fd:05"), 8},
		"many":                {strings.Repeat(line(7, "00:18"), 100) + line(8, "fd:05"), 8},
		"too many":            {strings.Repeat(line(7, "00:18"), mostLocks/40) + line(8, "fd:05"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			own := fmt.Sprintf("self/fdinfo/%d", f.Fd())
			put(t, filepath.Join(dir, own), "pos:\t0\nflags:\t02100002\nmnt_id:\t29\nino:\t3\n")
			put(t, filepath.Join(dir, "self/mountinfo"), "2 1 0:24 / / rw - tmpfs x rw\n29 2 253:5 / /tmp rw - btrfs x rw\n")
			put(t, filepath.Join(dir, "locks"), c.locks)
			for _, link := range []string{fmt.Sprintf("self/fd/%d", f.Fd()), "7/task/7/fd/3", "8/task/8/fd/3"} {
				link = filepath.Join(dir, link)
				if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(f.Name(), link); err != nil {
					t.Fatal(err)
				}
			}
			if h, _ := (FS{Root: dir}).lockHolder(f); h.PID != c.want {
				t.Errorf("process %d, want %d", h.PID, c.want)
			}
		})
	}
}

func TestFlockOn(t *testing.T) {
	for line, want := range map[string]int{
		"3: FLOCK  ADVISORY  WRITE 812 00:17:1203 0 EOF\n":    812,
		"3: FLOCK  ADVISORY  WRITE 812 00:17:1203\n":          812,
		"3: FLOCK  ADVISORY  WRITE 812 00:17:11203 0 EOF\n":   0,
		"3: FLOCK  ADVISORY  WRITE 812 00:18:1203 0 EOF\n":    0,
		"3: POSIX  ADVISORY  WRITE 812 00:17:1203 0 EOF\n":    0,
		"3: FLOCK  ADVISORY  WRITE -1 00:17:1203 0 EOF\n":     0,
		"3: -> FLOCK  ADVISORY  WRITE 900 00:17:1203 0 EOF\n": 0, // waits for it
		"": 0,
	} {
		if pid, ok := flockOn(line, "00:17:1203"); ok != (want > 0) || ok && pid != want {
			t.Errorf("%q: %d, %v", line, pid, ok)
		}
	}
}
