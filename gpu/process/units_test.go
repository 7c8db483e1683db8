package process_test

import (
	"maps"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestUnits: a process of which the kernel does not say where it is keeps none from its answer that was asked for before
// it, and is waited for no longer than the others. A pipe stands in the place of its file.
func TestUnits(t *testing.T) {
	proc := proctree.New(t)
	fs := process.FS{Root: proc.Root}
	for pid, cgroup := range map[int]string{
		10: "/system.slice/sshd.service", 20: "/user.slice/user-1000.slice/session-1.scope", 30: "/", 40: "/system.slice/cron.service",
	} {
		proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "x", Cgroup: cgroup})
	}
	want := map[int]string{10: "sshd.service", 20: "session-1.scope", 40: "cron.service"}
	if got := fs.Units([]int{10, 20, 30, 40, 50}, time.Hour); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	file := fs.Path(40, "cgroup")
	if err := unix.Unlink(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	delete(want, 40)
	if got := fs.Units([]int{10, 20, 30, 40}, 100*time.Millisecond); len(got) > len(want) || got[40] != "" { // fewer on a slow machine
		t.Errorf("beside one that is not known: %v", got)
	}
	if err := proctree.AnswerPipe(file, "0::/\n"); err != nil {
		t.Error(err)
	}
	if got := fs.Units(nil, time.Hour); len(got) != 0 {
		t.Error(got)
	}
}
