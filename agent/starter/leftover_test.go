package starter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestRemoveLeftovers: what a job left in its slot's slice goes when its starter has ended, however
// deep and wide it is. A slice with a process stays, and so does that of a starter.
func TestRemoveLeftovers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("cgroups need root: run this test as root")
	}
	mount := proctree.CgroupMount(t)
	f := newFakeProc(t)
	f.starter(100, "slot1_3")
	n := Leftovers{Node: f.fs()}
	n.Mount = filepath.Join(mount, fmt.Sprintf("gpuslot-leftover-%d", os.Getpid()))
	slice := func(slot string) string { return filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf(slot))) }
	t.Cleanup(func() {
		if err := deep.Remove(context.Background(), n.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	for _, slot := range []string{"slot1_1", "slot1_2", "slot1_3"} {
		if err := os.MkdirAll(filepath.Join(slice(slot), "job.scope"), 0o755); err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		if err := errors.Join(os.Chown(slice(slot), 1000, 1000), spoil(slice(slot))); err != nil {
			t.Fatal(err)
		}
	}
	login := strings.TrimSuffix(slice("slot1_1"), ".slice")
	if err := os.MkdirAll(filepath.Join(login, "sshd.slice/mine/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd",
		Cgroup: "/system.slice/condor.service/leaf"})
	dir, err := os.Open(filepath.Join(slice("slot1_2"), "job.scope"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	removed, err := n.Remove(t.Context())
	ended := filepath.Dir(proctree.CgroupOf("slot1_1"))
	if want := []string{strings.TrimSuffix(ended, ".slice"), ended}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v, want %q", removed, err, want)
	}
	for slot, there := range map[string]bool{"slot1_1": false, "slot1_2": true, "slot1_3": true} {
		if _, err := os.Stat(filepath.Join(slice(slot), "wide7")); (err == nil) != there {
			t.Errorf("%s: %v", slot, err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	f.End(100)
	if removed, err = n.Remove(t.Context()); err != nil || len(removed) != 2 {
		t.Errorf("when both have ended: removed %q, %v", removed, err)
	}
}

// TestLeftoversOfUnknown: while it is not known which jobs run, nothing is removed.
func TestLeftoversOfUnknown(t *testing.T) {
	f := newFakeProc(t)
	f.starter(100, "slot1_1")
	n := Leftovers{Node: f.fs()}
	n.Mount = t.TempDir()
	slice := n.has(t, "slot1_1", "", "")
	n.has(t, "slot1_9", "", "") // what cannot be read may have a process
	if err := os.WriteFile(filepath.Join(slice, "cgroup.events"), []byte("populated 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if removed, err := n.Remove(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("of a job that runs: removed %q, %v", removed, err)
	}
	f.unreadable(t, "100/stat")
	if removed, err := n.Remove(t.Context()); err == nil || len(removed) > 0 || !strings.Contains(err.Error(), "not known") {
		t.Errorf("of a job that may run: removed %q, %v", removed, err)
	}
	n.Mount = t.TempDir()
	if removed, err := n.Remove(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("where nothing is left nobody asks for jobs: removed %q, %v", removed, err)
	}
}

// TestLeftoversElsewhere: what has a slot's name beside HTCondor's daemons, but is no cgroup of HTCondor's, stays.
func TestLeftoversElsewhere(t *testing.T) {
	f := newFakeProc(t)
	n := Leftovers{Node: f.fs()}
	n.Mount = t.TempDir()
	f.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: "/site.slice/leaf"})
	slice := filepath.Join(n.Mount, "site.slice", filepath.Base(filepath.Dir(proctree.CgroupOf("slot1_1"))))
	if err := os.MkdirAll(slice, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slice, "cgroup.events"), []byte("populated 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	removed, err := n.Remove(t.Context())
	if _, gone := os.Stat(slice); err != nil || gone != nil || len(removed) > 0 {
		t.Errorf("removed %q, %v, %v", removed, err, gone)
	}
}

// spoil leaves cgroups in a slice: a hundred beside each other, and a hundred below each other, with
// a path of 20,000 bytes.
func spoil(slice string) error {
	for i := range 100 {
		if err := os.Mkdir(filepath.Join(slice, fmt.Sprintf("wide%d", i)), 0o755); err != nil {
			return err
		}
	}
	at, err := unix.Open(slice, unix.O_DIRECTORY, 0)
	for i := 0; err == nil && i < 100; i++ {
		name, above := strings.Repeat("d", 200), at
		err = unix.Mkdirat(above, name, 0o755)
		if err == nil {
			at, err = unix.Openat(above, name, unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(above)
	}
	return errors.Join(err, unix.Close(at))
}

// TestRemoveWhileMade: programs of another account make cgroups in two slices all the time, as a job of the same account
// can. They cannot keep gpuslotd from removing both.
func TestRemoveWhileMade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("cgroups need root: run this test as root")
	}
	mount := proctree.CgroupMount(t)
	n := Leftovers{Node: newFakeProc(t).fs()}
	n.Mount = filepath.Join(mount, fmt.Sprintf("gpuslot-made-%d", os.Getpid()))
	t.Cleanup(func() {
		if err := deep.Remove(context.Background(), n.Mount); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	for _, slot := range []string{"slot1_1", "slot1_2"} {
		slice := filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf(slot)))
		if err := os.MkdirAll(filepath.Join(slice, "a/b"), 0o755); err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		for _, dir := range []string{slice, filepath.Join(slice, "a"), filepath.Join(slice, "a/b")} {
			if err := os.Chown(dir, 1000, 1000); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			makes(t, slice, i)
		}
	}
	for _, slot := range []string{"slot1_1", "slot1_2"} { // until the programs are at it
		made := filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf(slot)), "a/b/0/0/0")
		until(t, func() bool { _, err := os.Stat(made); return err == nil })
	}
	until(t, func() bool {
		_, err := n.Remove(t.Context())
		return err == nil && len(slotCgroups(n.Mount, nil)) == 0
	})
}

// makes makes cgroups below each other in a slice, as account 1000, until the test ends.
func makes(t *testing.T, slice string, i int) {
	t.Helper()
	var maker sync.WaitGroup
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); maker.Wait() })
	maker.Go(func() {
		runtime.LockOSThread() // and it ends with the goroutine: the account is the thread's alone
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 1000, ^uintptr(0)); no != 0 {
			t.Error(no)
			return
		}
		for at := -1; ; {
			select {
			case <-ended:
				_ = unix.Close(at)
				return
			default:
			}
			above, name := at, strconv.Itoa(i)
			if above < 0 {
				above, name = unix.AT_FDCWD, filepath.Join(slice, "a/b", name)
			}
			_ = unix.Mkdirat(above, name, 0o755)
			next, err := unix.Openat(above, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if _ = unix.Close(at); err != nil {
				next = -1 // from above again
			}
			at = next
		}
	})
}

// TestRemoveNext: a slice whose removal takes too long stays, and the next has its turn. Whoever looks finds both in
// the answer, which is logged.
func TestRemoveNext(t *testing.T) {
	n := Leftovers{Node: newFakeProc(t).fs(), within: time.Nanosecond}
	n.Mount = t.TempDir()
	for _, slot := range []string{"slot1_1", "slot1_2"} {
		slice := n.has(t, slot, "", "")
		for name, text := range map[string]string{"cgroup.events": "populated 0\n", "cgroup.max.descendants": "0"} {
			if err := os.WriteFile(filepath.Join(slice, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	removed, err := n.Remove(t.Context())
	if len(removed) > 0 || !errors.Is(err, context.DeadlineExceeded) || strings.Count(err.Error(), "remove what a job left") != 2 {
		t.Errorf("removed %q, %v", removed, err)
	}
	text, err := os.ReadFile(filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf("slot1_1")), "cgroup.max.descendants"))
	if err != nil || !strings.HasPrefix(string(text), "max") {
		t.Errorf("in the slice that stays there may be %q cgroups, %v", text, err)
	}
}
