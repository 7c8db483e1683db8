package ending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// node is one with a shared GPU, and what its Ender works with.
type node struct {
	*Ender
	proc  proctree.Tree
	table *jobs.Table
	// clients are the MPS clients of its one server, breaches counts by what is done.
	clients  []int
	breaches map[string]int
}

func newNode(t testing.TB) *node {
	n := &node{proc: proctree.New(t), breaches: map[string]int{}}
	view := starter.Node{FS: process.FS{Root: n.proc.Root}, Own: uint32(os.Getuid())}
	n.table = jobs.New(view)
	n.Ender = New(Options{
		Clients: daemon{n}, Jobs: n.table, Holds: n.table, Processes: view, Starters: view,
		Users: starter.Users{Node: view}, Reservations: n, Events: n,
		Metrics: n, Log: slog.New(slog.DiscardHandler), Proc: view.FS, Root: t.TempDir(),
		MPS: func(gpu.UUID) bool { return true }, LinkHolds: func() error { return nil },
	})
	return n
}

// daemon is the GPU's control daemon.
type daemon struct{ n *node }

func (d daemon) Servers(context.Context, gpu.UUID) ([]mps.Server, error) {
	return []mps.Server{{ID: process.ID{PID: 50}, Clients: slices.Clone(d.n.clients)}}, nil
}

func (d daemon) EndClients(_ context.Context, _ gpu.UUID, pids []int, _ mps.EndRules) (mps.EndStep, error) {
	d.n.clients = slices.DeleteFunc(d.n.clients, func(pid int) bool { return slices.Contains(pids, pid) })
	return mps.EndStep{Free: pids}, nil
}

func (*node) EndReservation(context.Context, starter.Starter) {}

func (*node) Event(history.Event) {}

func (n *node) Breach(_ gpu.UUID, _ int, enforce string) { n.breaches[enforce]++ }

// starter adds the condor_starter of a slot.
func (n *node) starter(pid int, slot string) starter.Starter {
	return starter.Starter{ID: n.proc.Starter(pid, slot), Slot: slot}
}

// admit enters a job of uid 1000.
func (n *node) admit(s starter.Starter) {
	n.table.Admit(starter.Caller{Starter: s, Hook: true}, func(*jobs.View) []jobs.Job {
		return []jobs.Job{{Starter: s, GPU: uuid(0), Budget: 4096, ID: "7.0", Account: starter.Account{UID: 1000, Known: true}}}
	})
}

// jobUsing is a job with so many bytes on the GPU.
func jobUsing(used gpu.Bytes) rules.Job {
	return rules.Job{
		Job:    jobs.Job{GPU: uuid(0), Budget: 4096, ID: "7.0"},
		Memory: gpu.Known(used), PIDs: []int{200}, Known: true,
	}
}

// TestReportOnly: a dry run counts and tells once what would have been held, and
// lets the job run.
func TestReportOnly(t *testing.T) {
	n := newNode(t)
	st := n.starter(100, "slot1_1")
	n.admit(st)
	n.clients = []int{200}
	f := rules.Finding{Job: jobUsing(9000), Code: api.CodeOverBudget, Enforce: config.EnforceReport, First: true}
	f.Starter = st
	for range 2 {
		n.Punish(t.Context(), f)
		if got := n.breaches["report"]; got != 1 {
			t.Errorf("counted %v times", got)
		}
		f.First = false
	}
	n.Wait()
	if len(n.clients) != 1 || len(n.table.Holds()) > 0 {
		t.Errorf("clients %v, holds %v", n.clients, n.table.Holds())
	}
}

// TestClientsThatComeBack: until HTCondor has ended a job that it is to hold, each
// sample that finds a breach ends the job's clients; HTCondor is told once.
func TestClientsThatComeBack(t *testing.T) {
	n := newNode(t)
	st := n.starter(100, "slot1_1")
	n.admit(st)
	f := rules.Finding{Job: jobUsing(9000), Code: api.CodeOverBudget, Enforce: config.EnforceHold, First: true}
	f.Starter = st
	for range 3 {
		n.clients = []int{200}
		n.Punish(t.Context(), f)
		n.Wait()
		if len(n.clients) > 0 {
			t.Errorf("clients %v", n.clients)
		}
	}
	if got := n.breaches["hold"]; got != 1 || len(n.table.Holds()) != 1 {
		t.Errorf("counted %v times, holds %v", got, n.table.Holds())
	}
}

// TestKillBeside: by policy a process beside MPS is killed, if it is the job's.
func TestKillBeside(t *testing.T) {
	n := newNode(t)
	var log strings.Builder
	n.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	st, other := n.starter(100, "slot1_1"), n.starter(101, "slot1_2")
	n.admit(st)
	n.admit(other)
	var sleeps []*exec.Cmd
	for _, slot := range []string{"slot1_1", "slot1_2"} {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		n.proc.Add(proctree.Process{PID: c.Process.Pid, Parent: 1, Comm: "sleep", UID: 1000, Cgroup: proctree.CgroupOf(slot)})
		sleeps = append(sleeps, c)
	}
	f := rules.Finding{Job: jobUsing(100), Code: api.CodeUnattached, Enforce: config.EnforceKill, First: true}
	f.Starter = st
	f.Beside = []int{sleeps[0].Process.Pid, sleeps[1].Process.Pid}
	n.Punish(t.Context(), f)
	n.Wait()
	if err := sleeps[0].Wait(); err == nil || sleeps[0].ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the job's process: %v", err)
	}
	_ = sleeps[1].Process.Signal(syscall.SIGTERM) // the first signal is what it ended by
	if _ = sleeps[1].Wait(); sleeps[1].ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("another job's process: %v", sleeps[1].ProcessState)
	}
	if log.Len() > 0 {
		t.Errorf("what was killed, or is not the job's, is no error: %s", &log)
	}
	if holds := n.table.Holds(); len(holds) != 1 || holds[0].Code != api.CodeUnattached {
		t.Errorf("holds = %+v", holds)
	}
}

// TestEndOfAnotherAccount: where a site's own service gives a user cgroups, the
// account still tells. A starter without a GPU leaves nothing.
func TestEndOfAnotherAccount(t *testing.T) {
	n := newNode(t)
	n.admit(n.starter(100, "slot1_1"))
	mallory := starter.Caller{UID: 1001, PID: 4000, Starter: starter.Starter{Slot: "slot1_1@wn1.example.org"}}
	if _, err := n.End(t.Context(), mallory); err == nil {
		t.Error("it may end alice's clients")
	}
	without := n.starter(101, "slot1_2")
	if _, err := n.End(t.Context(), starter.Caller{UID: 1000, PID: 4000, Hook: true, Starter: without}); err != nil {
		t.Errorf("a starter without a GPU: %v", err)
	}
}

// TestKillsDelayNoSample: the kernel does not say where processes are that are to be killed. The sample goes on, one
// look is under way however many samples ask, and the processes are killed as soon as it is said.
func TestKillsDelayNoSample(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.admit(s)
	const session = "/user.slice/user-1000.slice/session-1.scope"
	var sleeps []*exec.Cmd
	for _, cgroup := range []string{session, proctree.CgroupOf("slot1_1")} {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		n.proc.Add(proctree.Process{PID: c.Process.Pid, Parent: 1, Comm: "sleep", UID: 1000, Cgroup: cgroup})
		file := n.proc.Root + "/" + strconv.Itoa(c.Process.Pid) + "/cgroup"
		if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
			t.Fatal(err)
		}
		sleeps = append(sleeps, c)
	}
	f := rules.Finding{Job: jobUsing(100), Code: api.CodeUnattached, Enforce: config.EnforceKill, First: true}
	f.Starter, f.PIDs, f.Beside = s, nil, []int{sleeps[1].Process.Pid}
	outside := process.ID{PID: sleeps[0].Process.Pid, Started: proctree.StartOf(sleeps[0].Process.Pid)}
	for range 3 {
		n.KillOutside(uuid(0), []process.ID{outside})
		n.Punish(t.Context(), f)
	}
	kills := 0
	n.kills.Range(func(_, _ any) bool { kills++; return true })
	if kills != 2 {
		t.Errorf("%d looks are under way", kills)
	}
	for i, c := range sleeps {
		file := n.proc.Root + "/" + strconv.Itoa(c.Process.Pid) + "/cgroup"
		if err := proctree.AnswerPipe(file, "0::"+[]string{session, proctree.CgroupOf("slot1_1")}[i]+"\n"); err != nil {
			t.Fatal(err)
		}
		if _ = c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("process %d: %v", i, c.ProcessState)
		}
	}
	n.Wait()
}
