package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenersWithManyFiles: a look at what processes have open ends, however many files a job opens. What is not
// looked at may be open, and its process is named.
func TestOpenersWithManyFiles(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	link := func(pid, fd int) {
		name := filepath.Join(fs.Root, fmt.Sprintf("%d/task/%d/fd/%d", pid, pid, fd))
		if err := os.Symlink("/dev/null", name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(fs.Root, "4/task/4/fd/0"), "")
	for pid := 10; pid < 20; pid++ {
		put(t, filepath.Join(fs.Root, fmt.Sprintf("%d/task/%d/fd/0", pid, pid)), "")
		put(t, filepath.Join(fs.Root, fmt.Sprint(pid), "comm"), "job\x1b\n")
		for fd := range fewFiles {
			link(pid, fd+1)
		}
	}
	looked := 0
	fits := func(File) bool { looked++; return false }
	got := openersAmong(t.Context(), fs, 1+fewFiles+1, fits)
	want := Opener{PID: 11, Unclear: `"job\x1b" has more than 256 open files and threads`}
	if len(got) != mostUnclear || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v", got)
	}
	if most := 1 + fewFiles + 1 + mostUnclear*fewFiles; looked > most {
		t.Errorf("%d files were looked at, at most %d are", looked, most)
	}
	if got := Openers(t.Context(), fs, fits); len(got) > 0 {
		t.Errorf("where all are looked at: %+v", got)
	}
	if got := Openers(t.Context(), FS{Root: fs.Root + "/none"}, fits); len(got) != 1 || got[0].Unclear == "" {
		t.Errorf("where processes cannot be listed: %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got = Openers(ctx, fs, func(File) bool { cancel(); return false })
	if len(got) != 1 || got[0].PID != 0 || !strings.Contains(got[0].Unclear, "pid 4 has 1 files open") {
		t.Errorf("after its deadline: %+v", got)
	}
	got = Openers(ctx, fs, fits)
	if len(got) != 1 || !strings.HasSuffix(got[0].Unclear, "; pid 0 has 0 files open") {
		t.Errorf("without a look: %+v", got)
	}
}

// TestOpenersWithoutThisOne: this process is left out, and those after it are not.
func TestOpenersWithoutThisOne(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	next := os.Getpid() + 1
	for _, pid := range []int{os.Getpid(), next} {
		put(t, filepath.Join(fs.Root, fmt.Sprintf("%d/task/%d/fd/0", pid, pid)), "")
	}
	got := Openers(t.Context(), fs, func(File) bool { return true })
	if len(got) != 1 || got[0].PID != next {
		t.Errorf("%+v, want pid %d", got, next)
	}
}

// hide has a device open in the table of a thread alone.
func hide(device string) error {
	var no error
	err := onThread(nil, func() { _, no = unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0) })
	return errors.Join(err, no)
}

// TestOpenersInThreads: a file that is open in the table of a thread alone is found.
func TestOpenersInThreads(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), "HIDE_DEVICE=/dev/full")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, _ := child.StdinPipe()
	out, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "hidden <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	full := deviceOf(t, "/dev/full")
	got := Openers(t.Context(), FS{}, of(full))
	want := Opener{PID: child.Process.Pid, Devices: []uint64{full}}
	if !slices.ContainsFunc(got, func(o Opener) bool { return reflect.DeepEqual(o, want) }) {
		t.Errorf("%+v is not in %+v", want, got)
	}
}
