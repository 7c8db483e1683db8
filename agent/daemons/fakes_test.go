package daemons

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// daemon is one control daemon. As a real one does, it forgets its limits and partitions when
// it is started again.
type daemon struct {
	id      process.ID
	limit   gpu.MiB
	flags   []string
	fault   mps.Fault
	servers []mps.Server
	stale   []int
}

// node has one shared GPU, or more. It is its daemons, jobs, processes, metrics and events.
type node struct {
	*Keeper
	t     *testing.T
	plan  plan.Plan
	paths config.Paths
	now   map[gpu.UUID]State
	keep  bool

	daemons map[gpu.UUID]*daemon
	next    int
	// did is what the daemons were told since the last call of since.
	did []string
	// deaf: a started daemon gets no flags.
	deaf bool
	// fails has the errors of what is asked of daemons and others, by its name.
	fails map[string]error
	// deadline is that of one question. contexts are those of what was asked.
	deadline time.Duration
	mu       sync.Mutex
	contexts []context.Context
	beats    int
	// comes is the state of a server that is asked for; empty if none comes. lines is the log.
	comes mps.ServerStatus
	lines []string

	busy    map[gpu.UUID]bool
	given   int
	unknown string
	work    bool
	owners  map[int]jobs.Job
	ended   []jobs.Job
	endedAt time.Time
	started map[int]uint64
	counts  map[string]int
	noted   []string
	log     bytes.Buffer
	// other is what partitions say.
	why   string
	other bool
}

func newNode(t *testing.T, gpus int) *node {
	t.Helper()
	n := &node{
		t: t, paths: config.Paths{Run: t.TempDir()}, daemons: map[gpu.UUID]*daemon{}, busy: map[gpu.UUID]bool{},
		owners: map[int]jobs.Job{}, started: map[int]uint64{}, counts: map[string]int{}, next: 100,
		fails: map[string]error{}, deadline: time.Second,
	}
	for i := range gpus {
		n.plan.GPUs = append(n.plan.GPUs, plan.GPU{
			UUID: uuid(i), Index: i, Mode: config.ModeMPS, Shares: 4, Pool: 16384, LargestRequest: 8192, DefaultRequest: 4096,
			Tenancy: plan.Tenancy{Policy: config.TenancyOneAtATime},
		})
	}
	n.Keeper = New(Options{
		Daemons: n, Checks: n, Clients: clientsOf{n}, Servers: n, Logs: n, Partitions: n, Jobs: n, Access: n, Owners: n, Processes: n,
		Work: n, Metrics: n, Events: n, Log: slog.New(slog.NewTextHandler(&n.log, nil)), Beat: func() { n.beats++ },
	})
	return n
}

// round is one of the loop's.
func (n *node) round() []error {
	n.t.Helper()
	now, problems := n.Round(n.t.Context(), Node{
		Plan: &n.plan, Paths: n.paths, Wanted: n.Wanted(&n.plan), Last: n.now, Deadline: n.deadline, Keep: n.keep,
	})
	n.now = now
	return problems
}

// since is what the daemons were told since the last call.
func (n *node) since() string {
	out := strings.Join(n.did, ", ")
	n.did = nil
	return out
}

// says checks why a GPU is closed; empty if it is open.
func (n *node) says(want string) {
	n.t.Helper()
	s := n.now[uuid(0)]
	got := s.Closed()
	if got == "" {
		got = s.Servers.Closed(time.Now())
	}
	if want == "" && got != "" || !strings.Contains(got, want) {
		n.t.Errorf("closed because %q, want %q", got, want)
	}
}

func (n *node) start(u gpu.UUID) *daemon {
	n.next++
	d := &daemon{id: process.ID{PID: n.next, Started: uint64(n.next)}}
	if !n.deaf {
		d.flags = Flags(n.paths, u)
	}
	n.daemons[u] = d
	return d
}

func (d *daemon) proof() mps.Checked {
	return mps.Checked{
		PID: d.id.PID, Started: d.id.Started, At: time.Now(), Limit: fmt.Sprint(d.limit), States: d.servers, Stale: d.stale,
	}
}

// asked notes a question with its context, and is its error.
func (n *node) asked(ctx context.Context, what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.contexts = append(n.contexts, ctx)
	return n.fails[what]
}

func (n *node) Set(ctx context.Context, wanted []mps.Wanted) (out []mps.Result, err error) {
	n.did = append(n.did, "set")
	if err := n.asked(ctx, "set"); err != nil {
		return nil, err
	}
	for _, w := range wanted {
		r := mps.Result{GPU: w.GPU, Action: mps.Adopted}
		d := n.daemons[w.GPU]
		if d == nil {
			d, r.Action = n.start(w.GPU), mps.Started
		}
		d.limit = w.Limit
		r.Checked = d.proof()
		out = append(out, r)
	}
	for u := range n.daemons {
		if !Wants(wanted, u) {
			out = append(out, mps.Result{GPU: u, Action: mps.Stopped, Err: n.fails["stop"]})
			if n.fails["stop"] == nil {
				delete(n.daemons, u)
			}
		}
	}
	return out, nil
}

func (n *node) fault(u gpu.UUID, f mps.Fault, differs ...mps.Difference) error {
	return &mps.Error{GPU: u, Fault: f, Text: "it is " + string(f), Differs: differs}
}

func (n *node) Check(ctx context.Context, w mps.Wanted) (mps.Checked, error) {
	_ = n.asked(ctx, "check")
	d := n.daemons[w.GPU]
	switch {
	case d == nil:
		return mps.Checked{}, n.fault(w.GPU, mps.NotRunning)
	case d.fault != "":
		return mps.Checked{}, n.fault(w.GPU, d.fault)
	case d.limit != w.Limit:
		return mps.Checked{}, n.fault(w.GPU, mps.WrongLimits, mps.Difference{Setting: mps.SettingLimit})
	}
	return d.proof(), nil
}

func (n *node) Restart(ctx context.Context, w mps.Wanted) mps.Result {
	n.did = append(n.did, "restart")
	if err := n.asked(ctx, "restart"); err != nil {
		return mps.Result{GPU: w.GPU, Err: err}
	}
	d := n.start(w.GPU)
	d.limit = w.Limit
	return mps.Result{GPU: w.GPU, Action: mps.Started, Checked: d.proof()}
}

func (n *node) QuickCheck(u gpu.UUID, p mps.Checked) (out mps.QuickCheck) {
	d := n.daemons[u]
	switch {
	case d == nil:
		return mps.QuickCheck{Err: n.fault(u, mps.NotRunning)}
	case d.fault != "":
		return mps.QuickCheck{Err: n.fault(u, d.fault)}
	}
	for _, s := range p.States {
		if !slices.ContainsFunc(d.servers, func(o mps.Server) bool { return o.ID == s.ID }) {
			out.Died = append(out.Died, s)
		}
	}
	return out
}

func (n *node) StartServer(ctx context.Context, u gpu.UUID, uid uint32) error {
	n.did = append(n.did, fmt.Sprintf("server of %d", uid))
	if err := n.asked(ctx, "start"); err != nil {
		return err
	}
	if n.comes != "" {
		n.daemons[u].servers = []mps.Server{{ID: process.ID{PID: 70, Started: uint64(n.next)}, UID: uid, Status: n.comes}}
	}
	return nil
}

func (n *node) ShutdownServer(ctx context.Context, u gpu.UUID, server int) error {
	n.did = append(n.did, fmt.Sprintf("end server %d", server))
	if err := n.asked(ctx, "end"); err != nil {
		return err
	}
	n.daemons[u].servers = nil
	return nil
}

func (n *node) SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Checked, error) {
	n.did = append(n.did, fmt.Sprintf("set servers %v", servers))
	n.daemons[w.GPU].stale = nil
	return n.daemons[w.GPU].proof(), n.asked(ctx, "set servers")
}

func (n *node) Log(ctx context.Context, _ gpu.UUID, _ time.Time) ([]string, error) {
	n.did = append(n.did, "log")
	return n.lines, n.asked(ctx, "log")
}

// clientsOf are the keeper's Clients.
type clientsOf struct{ *node }

func (c clientsOf) Servers(_ context.Context, u gpu.UUID) ([]mps.Server, error) {
	return c.daemons[u].servers, c.fails["servers"]
}

func (n *node) Drop() error { return n.fails["drop"] }

func (n *node) Have(context.Context, *plan.GPU, process.ID, time.Duration) (string, bool) {
	return n.why, n.other
}

func (n *node) Busy(u gpu.UUID) bool { return n.busy[u] }

func (n *node) Since(u gpu.UUID, begin time.Time) (out []jobs.Job) {
	if n.endedAt.After(begin) {
		out = slices.Clone(n.ended)
	}
	for _, pid := range slices.Sorted(maps.Keys(n.owners)) {
		if j := n.owners[pid]; j.GPU == u {
			out = append(out, j)
		}
	}
	return out
}
func (n *node) Given(gpu.UUID) int { return n.given }
func (n *node) Unknown() string    { return n.unknown }

func (n *node) StarterOf(pid int) (starter.Starter, bool) {
	j, ok := n.owners[pid]
	return j.Starter, ok
}

func (n *node) HeldBy(s starter.Starter) (out []jobs.Job) {
	for _, j := range n.owners {
		if j.Starter == s {
			out = append(out, j)
		}
	}
	return out
}

func (n *node) Runs(process.ID) bool { return true }

func (n *node) Args(pid int) ([]string, error) {
	for _, d := range n.daemons {
		if d.id.PID == pid {
			return append([]string{"nvidia-cuda-mps-control"}, d.flags...), nil
		}
	}
	return nil, nil
}

// unanswered is the start of a process that the kernel does not answer.
const unanswered = 1<<64 - 1

func (n *node) Stat(pid int) (process.Stat, error) {
	if n.started[pid] == unanswered {
		return process.Stat{}, process.ErrHeld
	}
	return process.Stat{ID: process.ID{PID: pid, Started: n.started[pid]}}, nil
}

func (n *node) None(gpu.UUID, time.Time) bool { return !n.work }
func (n *node) End(_ context.Context, _ gpu.UUID, pids []int) {
	n.did = append(n.did, fmt.Sprintf("end %v", pids))
}

func (n *node) ServerFault(gpu.UUID)           { n.counts["fault"]++ }
func (n *node) ServerDied(gpu.UUID)            { n.counts["died"]++ }
func (n *node) ForeignChange(gpu.UUID, string) { n.counts["change"]++ }
func (n *node) Event(e history.Event)          { n.noted = append(n.noted, e.Text) }

func (n *node) TrimLog(gpu.UUID) error {
	n.counts["trim"]++
	return n.fails["trim"]
}

// sleeps starts a process, and says when it has ended.
func sleeps(t *testing.T) (pid int, ended chan struct{}) {
	t.Helper()
	victim := exec.Command("sleep", "600")
	victim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() { _ = victim.Wait(); close(ended) }()
	t.Cleanup(func() { _ = victim.Process.Kill(); <-ended })
	return victim.Process.Pid, ended
}
