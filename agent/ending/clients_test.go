package ending

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// fakeJobs is a job of two GPUs, and a node whose processes are where owners has them.
type fakeJobs struct {
	starter  starter.Starter
	held     []jobs.Job
	owners   map[int]starter.Starter
	together map[int]bool
	holds    map[starter.Starter]api.Hold
}

func (f *fakeJobs) OfCaller(*starter.Caller) ([]jobs.Job, map[gpu.UUID]int, error) {
	return f.held, nil, nil
}

func (f *fakeJobs) StarterOf(pid int) (starter.Starter, bool) {
	s, ok := f.owners[pid]
	return s, ok
}
func (f *fakeJobs) RunsBelow(pid int, s starter.Starter) bool { return f.owners[pid] == s }
func (f *fakeJobs) Together(pid int, _ starter.Caller, _ starter.Starter) bool {
	return f.together[pid]
}
func (f *fakeJobs) Stat(int) (process.Stat, error)      { return process.Stat{}, nil }
func (f *fakeJobs) Hold(starter.Starter, api.Hold) bool { return false }
func (f *fakeJobs) HoldOf(s starter.Starter) api.Hold   { return f.holds[s] }

// fakeDaemons lists servers of GPUs, and notes which clients it ended and whose reservation.
type fakeDaemons struct {
	mu       sync.Mutex
	servers  map[gpu.UUID][]mps.Server
	fails    map[gpu.UUID]error
	waiting  []int
	ended    map[gpu.UUID][]int
	reserved []starter.Starter
	under    chan struct{} // not nil: EndClients waits until it is closed
}

func (d *fakeDaemons) Servers(_ context.Context, u gpu.UUID) ([]mps.Server, error) {
	return d.servers[u], d.fails[u]
}

func (d *fakeDaemons) EndClients(_ context.Context, u gpu.UUID, pids []int, _ mps.EndRules) (mps.EndStep, error) {
	if d.under != nil {
		<-d.under
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended[u] = append(d.ended[u], pids...)
	return mps.EndStep{Free: pids, Waiting: d.waiting}, nil
}

func (d *fakeDaemons) EndReservation(_ context.Context, s starter.Starter) {
	d.reserved = append(d.reserved, s)
}

// twoGPUs is a node whose job has clients 200 and 201 on the first GPU, 202 on the second one, and others
// beside them: 300 of another job, 301 of a login to the job, 302 of no job.
func twoGPUs(t *testing.T) (*node, *fakeJobs, *fakeDaemons) {
	t.Helper()
	mine := starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	other := starter.Starter{ID: process.ID{PID: 101, Started: 1}, Slot: "slot1_2"}
	f := &fakeJobs{starter: mine, owners: map[int]starter.Starter{200: mine, 201: mine, 202: mine, 300: other, 301: mine},
		together: map[int]bool{200: true, 201: true, 202: true, 300: true}, holds: map[starter.Starter]api.Hold{mine: {Reason: "too much"}},
		held: []jobs.Job{{Starter: mine, GPU: uuid(0)}, {Starter: mine, GPU: uuid(1)}, {Starter: mine, GPU: uuid(2)}}}
	d := &fakeDaemons{ended: map[gpu.UUID][]int{}, fails: map[gpu.UUID]error{}, servers: map[gpu.UUID][]mps.Server{
		uuid(0): {{Clients: []int{200, 300}}, {Clients: []int{301, 302, 201}}}, uuid(1): {{Clients: []int{202}}}, uuid(2): {{Clients: []int{200}}},
	}}
	n := newNode(t)
	n.Clients, n.Jobs, n.Holds, n.Processes, n.Starters, n.Reservations = d, f, f, f, f, d
	n.MPS = func(u gpu.UUID) bool { return u != uuid(2) }
	return n, f, d
}

// TestEndOfAJob: its clients on each GPU end, and those in its leaf only; then its reservation.
func TestEndOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*starter.Caller, *fakeDaemons)
		want api.Ended
		pids map[gpu.UUID][]int
	}{
		"a job": {func(*starter.Caller, *fakeDaemons) {}, api.Ended{Clients: 3, Wait: "too much"},
			map[gpu.UUID][]int{uuid(0): {200, 201}, uuid(1): {202}}},
		"a login": {func(c *starter.Caller, _ *fakeDaemons) { c.Leaf.Login = true }, api.Ended{Clients: 3},
			map[gpu.UUID][]int{uuid(0): {200, 201}, uuid(1): {202}}},
		"clients that stay": {func(_ *starter.Caller, d *fakeDaemons) { d.waiting = []int{9} }, api.Ended{Clients: 3, Remaining: 2, Wait: "too much"},
			map[gpu.UUID][]int{uuid(0): {200, 201}, uuid(1): {202}}},
		"no clients": {func(_ *starter.Caller, d *fakeDaemons) { d.servers = nil }, api.Ended{Wait: "too much"}, map[gpu.UUID][]int{}},
		"a daemon that does not answer": {func(_ *starter.Caller, d *fakeDaemons) { d.fails[uuid(0)] = errors.New("busy") },
			api.Ended{Clients: 1, Wait: "too much"}, map[gpu.UUID][]int{uuid(1): {202}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, f, d := twoGPUs(t)
			caller := starter.Caller{Starter: f.starter, PID: 5}
			c.set(&caller, d)
			for range 2 { // the turn is given back
				clear(d.ended)
				got, err := n.End(t.Context(), caller)
				if (err != nil) != (len(d.fails) > 0) || *got != c.want || !maps.EqualFunc(d.ended, c.pids, slices.Equal) {
					t.Errorf("%s: %+v, %v, ended %v", name, got, err, d.ended)
				}
			}
			if login := caller.Leaf.Login; login != (len(d.reserved) == 0) {
				t.Errorf("%s: reservations ended: %v", name, d.reserved)
			}
		})
	}
}

// TestEndOfTheLastProcess: where a supervisor is alone in its job's cgroups no daemon is asked.
func TestEndOfTheLastProcess(t *testing.T) {
	n, f, d := twoGPUs(t)
	caller := starter.Caller{Starter: f.starter, PID: 5, Leaf: starter.Leaf{Path: "/leaf"}}
	if err := errors.Join(os.Mkdir(filepath.Join(n.Root, "leaf"), 0o755),
		os.WriteFile(filepath.Join(n.Root, "leaf", "cgroup.procs"), []byte("5\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, err := n.End(t.Context(), caller)
	if err != nil || got.Clients != 0 || got.Wait != "too much" || len(d.ended) > 0 || len(d.reserved) != 1 {
		t.Errorf("%+v, %v, %+v", got, err, d)
	}
}

// TestEndIsAskedTooOften: who asks while two others wait is refused, and who goes away leaves its place.
func TestEndIsAskedTooOften(t *testing.T) {
	n, f, _ := twoGPUs(t)
	release, err := n.turns.take(t.Context(), f.starter)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if _, err := n.End(gone, starter.Caller{Starter: f.starter}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	n.turns.by[f.starter].waiting = 2
	if _, err := n.End(t.Context(), starter.Caller{Starter: f.starter}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	n.turns.by[f.starter].waiting = 1
	if release(); n.turns.by[f.starter].waiting != 0 {
		t.Errorf("%d wait", n.turns.by[f.starter].waiting)
	}
}

// TestPaceOfAnswers: two answers to one job are a pause apart.
func TestPaceOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f, _ := twoGPUs(t)
		begin := time.Now()
		for i := range 3 {
			release, err := n.turns.take(t.Context(), f.starter)
			if got := time.Since(begin); err != nil || got != time.Duration(i)*endPause {
				t.Errorf("answer %d after %v, %v", i, got, err)
			}
			release()
		}
	})
}

// TestTakeBack: a job's clients on GPUs that its slot does not have end, wherever they run below its starter.
func TestTakeBack(t *testing.T) {
	n, f, d := twoGPUs(t)
	d.fails[uuid(1)] = errors.New("busy")
	n.TakeBack(t.Context(), f.held)
	n.Wait()
	if want := map[gpu.UUID][]int{uuid(0): {200, 301, 201}}; !maps.EqualFunc(d.ended, want, slices.Equal) {
		t.Errorf("ended %v", d.ended)
	}
	clear(d.ended)
	d.servers = map[gpu.UUID][]mps.Server{uuid(0): {{Clients: []int{300}}}}
	n.TakeBack(t.Context(), f.held)
	n.Wait()
	if len(d.ended) > 0 {
		t.Errorf("another's ended: %v", d.ended)
	}
}

// TestPunishAnEndedJob: a job that has ended is left alone; of one that is to be held all clients end, one
// time at a time, and the reservation with them.
func TestPunishAnEndedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f, d := twoGPUs(t)
		addSession(n, 302)
		finding := rules.Finding{Job: jobUsing(9000), Code: api.CodeOverBudget, Enforce: config.EnforceHold}
		finding.Starter, finding.Elsewhere = f.starter, []rules.Stray{{GPU: uuid(1), PID: 202}}
		n.Punish(t.Context(), finding) // HoldOf has no code
		n.Wait()
		if len(d.ended) > 0 {
			t.Errorf("ended %v", d.ended)
		}
		f.holds[f.starter] = api.Hold{Code: 1}
		d.under = make(chan struct{})
		n.Punish(t.Context(), finding)
		n.EndOutside(t.Context(), uuid(1), []int{302})
		synctest.Wait() // both are under way
		n.Punish(t.Context(), finding)
		n.EndOutside(t.Context(), uuid(1), []int{302})
		synctest.Wait()
		close(d.under)
		n.Wait()
		want := map[gpu.UUID][]int{uuid(0): {200}, uuid(1): {202, 302}}
		for _, pids := range d.ended {
			slices.Sort(pids)
		}
		if !maps.EqualFunc(d.ended, want, slices.Equal) || len(d.reserved) != 1 {
			t.Errorf("ended %v, reservations %v", d.ended, d.reserved)
		}
	})
}

// TestLinkOfHolds: it is written with the first hold of a job, and an error is logged.
func TestLinkOfHolds(t *testing.T) {
	n, log, links := newNode(t), strings.Builder{}, 0
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.LinkHolds = func() error { links++; return errors.New("no room") }
	st := n.starter(100, "slot1_1")
	n.admit(st)
	f := rules.Finding{Job: jobUsing(9000), Code: api.CodeOverBudget, Enforce: config.EnforceHold}
	f.Starter = st
	for range 2 {
		n.Punish(t.Context(), f)
		n.Wait()
	}
	if links != 1 || strings.Count(log.String(), "no room") != 1 {
		t.Errorf("%d links, logged %s", links, &log)
	}
}

// TestKillWhatHasEnded: a process that has ended meanwhile is no error in the log.
func TestKillWhatHasEnded(t *testing.T) {
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	n, log := newNode(t), strings.Builder{}
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	f := rules.Finding{}
	f.Beside = []int{c.Process.Pid}
	n.killBeside(f)
	n.KillOutside(uuid(0), []process.ID{{PID: c.Process.Pid}})
	n.Wait()
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	f.Beside = []int{-1}
	n.killBeside(f)
	n.KillOutside(uuid(0), []process.ID{{PID: -1}})
	n.Wait()
	if strings.Count(log.String(), "was not killed") != 2 {
		t.Errorf("logged %s", &log)
	}
}

// TestStartLink: the word that supervisors read.
func TestStartLink(t *testing.T) {
	l := &Links{Directory: t.TempDir()}
	if err := os.Mkdir(filepath.Join(l.Directory, "condor"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(l.Directory, "condor", "start")
	if err := l.Start(api.StartAsked); err != nil {
		t.Fatal(err)
	}
	if word, err := os.Readlink(link); word != api.StartAsked {
		t.Errorf("%q, %v", word, err)
	}
}
