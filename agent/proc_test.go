package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
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
	waitForState(t, cmd.Process.Pid, func(p process) bool { return p.State == 'Z' })
	return cmd
}

func waitForState(t *testing.T, pid int, is func(process) bool) process {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p, err := procFS{"/proc"}.process(pid)
		if err == nil && is(p) {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("process %d did not get there: %+v, %v", pid, p, err)
		}
	}
}

// oneSlot is a site on which every process is of one slot.
type oneSlot struct{ key usage.SlotKey }

func (s oneSlot) Slot(int, uint64) (usage.SlotKey, bool) { return s.key, true }
func (oneSlot) Bookings() []usage.Booking                { return nil }
func (oneSlot) Server(int, uint64) bool                  { return false }

// lists is a driver that lists one process on one GPU.
type lists struct{ pid int }

func (l lists) Read(context.Context) ([]gpu.Reading, error) {
	return []gpu.Reading{{GPU: "GPU-00000000-0000-4000-8000-000000000000", At: time.Now(), Use: gpu.Use{
		Processes: gpu.Known([]gpu.DeviceProcess{{PID: l.pid, Memory: gpu.Known(gpu.Bytes(20 << 30))}}),
	}}}, nil
}

// TestFirstThreadEnded: pthread_exit in main leaves a process that is a zombie
// by its state. It runs on, so its memory is its slot's and its start time, its
// cgroup and its mounts are read.
func TestFirstThreadEnded(t *testing.T) {
	cmd := leaderless(t)
	pid, fs := cmd.Process.Pid, procFS{"/proc"}
	p, err := fs.process(pid)
	if err != nil || p.gone() || !fs.alive(pid, p.Started) {
		t.Errorf("a process that runs in its second thread counts as ended: %+v, %v", p, err)
	}
	own, errOwn := fs.cgroup(os.Getpid())
	its, err := fs.cgroup(pid)
	if err != nil || errOwn != nil || !bytes.Equal(own, its) {
		t.Errorf("its cgroup is not this test's: %q, %v; %q, %v", its, err, own, errOwn)
	}
	if _, err := fs.readThread(pid, "mountinfo"); err != nil {
		t.Errorf("its mounts are not known: %v", err)
	}
	key := usage.SlotKey{Slot: "slot1_1", Starter: 50, Started: 1}
	sampler := usage.NewSampler(usage.Options{Source: lists{pid}, Site: oneSlot{key}, Interval: time.Hour})
	sampler.Round(t.Context())
	if s := sampler.Snapshot().Slots; len(s) != 1 || s[0].Slot != key || s[0].Memory != gpu.Known(gpu.Bytes(20<<30)) {
		t.Errorf("its memory is not its slot's: %+v", s)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if p = waitForState(t, pid, func(p process) bool { return p.Threads <= 1 }); !p.gone() || fs.alive(pid, p.Started) {
		t.Errorf("a process without a thread that runs counts as alive: %+v", p)
	}
	sampler.Round(t.Context())
	d := sampler.Snapshot().Devices[0]
	if d.Unowned != 1 || d.UnownedMemory != gpu.Known(gpu.Bytes(20<<30)) {
		t.Errorf("the memory of a process that is gone is nobody's: %+v", d)
	}
}

// With cgroup v1 a first thread that has ended is shown in the root, and its
// descriptors are closed; those of the threads that run are asked for.
func TestThreadThatRuns(t *testing.T) {
	f := newFakeProc(t)
	leader := thread{tid: 700, state: "Z", cgroup: "4:memory:/\n0::/\n"}
	ended := thread{tid: 701, state: "Z", cgroup: "4:memory:/\n0::/\n"}
	runs := thread{tid: 702, state: "S", cgroup: "4:memory:/htcondor/condor_var_lib_condor_execute_slot3_1@pool.test\n0::/\n", opened: "/dev/nvidia0"}
	f.add(proc{pid: 700, parent: 1, comm: "job", state: "Z", cgroup: "/", threads: []thread{leader, ended, runs}})
	if slot, err := f.fs().cgroupSlot(700); slot != "slot3_1@pool.test" || err != nil {
		t.Errorf("a job that hides behind its first thread is in slot %q, %v", slot, err)
	}
	if got := deviceHolders(f.root); len(got) != 1 || got[0] != (api.NodeHolder{PID: 700, Name: "job"}) {
		t.Errorf("the driver's device files are kept open by %+v", got)
	}
	f.add(proc{pid: 800, parent: 1, comm: "job", state: "Z", threads: []thread{{tid: 800, state: "Z"}}})
	if _, err := f.fs().readThread(800, "environ"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an ended process has an environment: %v", err)
	}
}
