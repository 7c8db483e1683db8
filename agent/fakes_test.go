package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mps"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// inventoryOf is a node of n V100S.
func inventoryOf(n int) gpu.Inventory {
	inv := gpu.Inventory{
		Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4",
		Host: gpu.Host{Name: "wn1.example.org", CPUs: 64, Memory: 524288}, GPUs: []gpu.GPU{},
	}
	for i := range n {
		inv.GPUs = append(inv.GPUs, gpu.GPU{
			UUID: uuid(i), Index: i, Name: "Tesla V100S-PCIE-32GB", PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", 0x10+i)),
			Memory: 32768, Capability: gpu.Volta, ComputeMode: gpu.ComputeModeDefault,
		})
	}
	return inv
}

// fakeHardware is a node whose GPUs can come and go.
type fakeHardware struct {
	mu  sync.Mutex
	inv gpu.Inventory
	err error
	// modes logs every SetComputeMode.
	modes  []string
	refuse error
	// stuck holds a reader as a cgo call into a hanging driver does.
	stuck chan struct{}
}

func (h *fakeHardware) Inventory(context.Context) (gpu.Inventory, []error, error) {
	h.mu.Lock()
	stuck := h.stuck
	h.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	inv := h.inv
	inv.GPUs = slices.Clone(inv.GPUs)
	return inv, nil, h.err
}

func (h *fakeHardware) SetComputeMode(_ context.Context, u gpu.UUID, m gpu.ComputeMode) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return h.refuse
	}
	for i := range h.inv.GPUs {
		if h.inv.GPUs[i].UUID == u {
			h.inv.GPUs[i].ComputeMode = m
			h.modes = append(h.modes, fmt.Sprintf("%s %s", u, m))
			return nil
		}
	}
	return fmt.Errorf("%s is not there", u)
}

func (h *fakeHardware) set(inv gpu.Inventory, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inv, h.err = inv, err
}

// fakeDaemon behaves as a control daemon does: it forgets its limits when it
// is started again, and answers nothing while it is stopped by a signal.
type fakeDaemon struct {
	process process.ID
	limit   gpu.MiB
	frozen  bool
	wedged  bool
	servers []mps.Server
	stale   []int
	// partitions are its static SM partitions, of so many chunks each.
	partitions []int
}

// fakeDaemons are control daemons behind the agent's interface. They record
// what happens in the order of an events list that hardware and files may share.
type fakeDaemons struct {
	mu      sync.Mutex
	running map[gpu.UUID]*fakeDaemon
	next    int
	sets    int
	broken  map[gpu.UUID]error // Set cannot start these
	happens func(string)
	asked   func() error // in place of an answer; nil answers
}

func newFakeDaemons() *fakeDaemons {
	return &fakeDaemons{running: map[gpu.UUID]*fakeDaemon{}, next: 1000, broken: map[gpu.UUID]error{}, happens: func(string) {}}
}

func (f *fakeDaemons) fault(u gpu.UUID, kind mps.Fault) error {
	return &mps.Error{GPU: u, Fault: kind, Text: "it is " + string(kind) + ": see its log"}
}

func (f *fakeDaemons) Set(_ context.Context, wanted []mps.Wanted) ([]mps.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sets++
	var out []mps.Result
	keep := map[gpu.UUID]bool{}
	for _, w := range wanted {
		keep[w.GPU] = true
		r := mps.Result{GPU: w.GPU, Action: mps.Adopted}
		d := f.running[w.GPU]
		switch {
		case f.broken[w.GPU] != nil:
			r.Err = f.broken[w.GPU]
		case d != nil && (d.frozen || d.wedged):
			r.Err = f.fault(w.GPU, mps.Wedged)
		case d == nil:
			f.next++
			d = &fakeDaemon{process: process.ID{PID: f.next, Started: uint64(f.next)}}
			f.running[w.GPU] = d
			r.Action = mps.Started
			f.happens("start " + string(w.GPU))
			fallthrough
		default:
			d.limit = w.Limit
			r.Checked = f.proof(d)
		}
		out = append(out, r)
	}
	for u := range f.running {
		if !keep[u] {
			delete(f.running, u)
			f.happens("stop " + string(u))
			out = append(out, mps.Result{GPU: u, Action: mps.Stopped})
		}
	}
	return out, nil
}

func (f *fakeDaemons) proof(d *fakeDaemon) mps.Checked {
	p := mps.Checked{PID: d.process.PID, Started: d.process.Started, At: time.Now(), Limit: fmt.Sprintf("%dG", d.limit/1024), ThreadPercentage: "100.0"}
	p.Stale = slices.Clone(d.stale)
	for _, s := range d.servers {
		p.Servers, p.States = append(p.Servers, s.PID), append(p.States, s)
	}
	return p
}

func (f *fakeDaemons) Servers(_ context.Context, u gpu.UUID) ([]mps.Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[u]
	if d == nil || d.wedged || d.frozen {
		return nil, f.fault(u, mps.Wedged)
	}
	return slices.Clone(d.servers), nil
}

// EndClients takes clients off the servers' lists, as their ends do.
func (f *fakeDaemons) EndClients(_ context.Context, u gpu.UUID, pids []int, _ mps.EndRules) (mps.EndStep, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[u]
	if d == nil || d.wedged || d.frozen {
		return mps.EndStep{Waiting: pids}, f.fault(u, mps.Wedged)
	}
	for i := range d.servers {
		d.servers[i].Clients = slices.DeleteFunc(slices.Clone(d.servers[i].Clients), func(pid int) bool { return slices.Contains(pids, pid) })
	}
	f.happens(fmt.Sprintf("end %v", pids))
	return mps.EndStep{Free: pids}, nil
}

func (f *fakeDaemons) SetServers(_ context.Context, w mps.Wanted, servers []int) (mps.Checked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[w.GPU]
	if d == nil || d.wedged || d.frozen {
		return mps.Checked{}, f.fault(w.GPU, mps.Wedged)
	}
	f.happens(fmt.Sprintf("set servers %v", servers))
	d.stale = nil
	return f.proof(d), nil
}

func (f *fakeDaemons) StartServer(_ context.Context, _ gpu.UUID, uid uint32) error {
	f.happens(fmt.Sprintf("start server of %d", uid))
	return nil
}

func (f *fakeDaemons) Check(_ context.Context, w mps.Wanted) (mps.Checked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[w.GPU]
	switch {
	case f.asked != nil:
		return mps.Checked{}, f.asked()
	case d == nil:
		return mps.Checked{}, f.fault(w.GPU, mps.NotRunning)
	case d.frozen:
		return mps.Checked{}, f.fault(w.GPU, mps.Suspended)
	case d.wedged:
		return mps.Checked{}, f.fault(w.GPU, mps.Wedged)
	case d.limit != w.Limit:
		return mps.Checked{}, &mps.Error{GPU: w.GPU, Fault: mps.WrongLimits, Text: "its limits are others: see its log",
			Differs: []mps.Difference{{Setting: mps.SettingLimit, Read: d.limit.String(), Want: w.Limit.String()}}}
	}
	return f.proof(d), nil
}

func (f *fakeDaemons) Restart(_ context.Context, w mps.Wanted) mps.Result {
	f.kill(w.GPU, true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happens("restart " + string(w.GPU))
	f.running[w.GPU].limit = w.Limit
	return mps.Result{GPU: w.GPU, Action: mps.Started, Checked: f.proof(f.running[w.GPU])}
}

func (f *fakeDaemons) QuickCheck(u gpu.UUID, p mps.Checked) mps.QuickCheck {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[u]
	switch {
	case d == nil:
		return mps.QuickCheck{Err: f.fault(u, mps.NotRunning)}
	case d.frozen:
		return mps.QuickCheck{Err: f.fault(u, mps.Suspended)}
	case d.process != p.Process():
		return mps.QuickCheck{Err: f.fault(u, mps.Gone)}
	}
	var out mps.QuickCheck
	for _, s := range p.States {
		if !slices.ContainsFunc(d.servers, func(o mps.Server) bool { return o.ID == s.ID }) {
			out.Died = append(out.Died, s)
		}
	}
	return out
}

// kill ends a daemon; restart also starts a new one without limits, as systemd does.
func (f *fakeDaemons) kill(u gpu.UUID, restart bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, u)
	if restart {
		f.next++
		f.running[u] = &fakeDaemon{process: process.ID{PID: f.next, Started: uint64(f.next)}}
	}
}

func (f *fakeDaemons) change(u gpu.UUID, do func(*fakeDaemon)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.running[u])
}

// fakeAccess are pipe directories that remember who is in.
type fakeAccess struct {
	mu  sync.Mutex
	in  map[access.Entry]bool
	err error
	// calls counts changes, restricted those of the files.
	calls      int
	restricted map[gpu.UUID]int
}

func newFakeAccess() *fakeAccess {
	return &fakeAccess{in: map[access.Entry]bool{}, restricted: map[gpu.UUID]int{}}
}

func (d *fakeAccess) Admit(u gpu.UUID, uid uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.err == nil {
		d.in[access.Entry{GPU: u, UID: uid}] = true
	}
	return d.err
}

func (d *fakeAccess) Revoke(u gpu.UUID, uid uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.err == nil {
		delete(d.in, access.Entry{GPU: u, UID: uid})
	}
	return d.err
}

func (d *fakeAccess) Restrict(u gpu.UUID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restricted[u]++
	return nil
}

func (d *fakeAccess) Admitted() ([]access.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.in)), nil
}

func (d *fakeAccess) has(u gpu.UUID, uid uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.in[access.Entry{GPU: u, UID: uid}]
}

// fakeStartd is a startd whose slots the test writes.
type fakeStartd struct {
	mu      sync.Mutex
	version condor.Version
	slots   []condor.Slot
	err     error
	asked   int
	// orders are what it was told to do.
	orders []string
	demand condor.Demand
	// heard is closed when what waits is first asked for; nil where no test waits for that.
	heard chan struct{}
}

func (s *fakeStartd) Demand(context.Context, time.Time) (condor.Demand, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard != nil {
		close(s.heard)
		s.heard = nil
	}
	return s.demand, s.err
}

func (s *fakeStartd) Version(context.Context) (condor.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == (condor.Version{}) {
		return s.version, errors.New("condor_version is not in PATH; install HTCondor 24.0.1 or later")
	}
	return s.version, nil
}

// Slots are those whose names say that they are the startd's.
func (s *fakeStartd) Slots(_ context.Context, startd string) ([]condor.Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	own := slices.Clone(s.slots)
	return slices.DeleteFunc(own, func(o condor.Slot) bool { return condor.StartdOf(o.Name) != startd }), s.err
}

// questions is how often its slots were asked for.
func (s *fakeStartd) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *fakeStartd) Restart(_ context.Context, startd string) error {
	return s.told("restart " + startd)
}

func (s *fakeStartd) Reconfigure(context.Context) error { return s.told("reconfigure") }

func (s *fakeStartd) told(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, what)
	return s.err
}

func (s *fakeStartd) set(slots []condor.Slot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots, s.err = slots, err
}

// slotAd is a dynamic slot that runs a job.
func slotAd(name, job, owner string, mib int64, u gpu.UUID) condor.Slot {
	return condor.Slot{Name: name + "@wn1.example.org", Type: "Dynamic", State: "Claimed", JobID: job,
		RemoteOwner: owner + "@example.org", AssignedGPUs: []string{string(u)}, VRAM: &mib, GPUs: 1, Cpus: 1}
}

// testAgent is an agent over fakes, not serving.
type testAgent struct {
	*Agent
	t       testing.TB
	dir     string
	proc    fakeProc
	hw      *fakeHardware
	daemons *fakeDaemons
	access  *fakeAccess
	startd  *fakeStartd
	// can is what the control program is found to do.
	can mps.Capabilities
	// mig changes MIG layouts; nil if nothing can.
	mig mig.Hardware
}

// options are those of a test agent; config is the text of gpuslot.toml behind
// the paths.
func (ta *testAgent) options() Options {
	return Options{
		ConfigFile: filepath.Join(ta.dir, "gpuslot.toml"), Build: metrics.Build{Version: "test"},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Hardware: ta.hw, Startd: ta.startd, Pool: ta.startd,
		probe: func(context.Context, string, gpu.UUID) (mps.Capabilities, error) { return ta.can, nil },
		proc:  ta.proc.Root, daemons: ta.daemons, clients: ta.daemons, pipes: ta.access,
		MIG: mig.Executor{Hardware: ta.mig, Boot: "test"},
	}
}

// status is what operators see.
func (a *Agent) status() *api.Status { return a.reader.Look(time.Now()).Status() }

func (ta *testAgent) writeConfig(text string) {
	ta.t.Helper()
	all := fmt.Sprintf("[paths]\nrun = %q\nstate = %q\n[metrics]\nlisten = \"\"\n%s", filepath.Join(ta.dir, "r"), filepath.Join(ta.dir, "s"), text)
	if err := os.WriteFile(filepath.Join(ta.dir, "gpuslot.toml"), []byte(all), 0o644); err != nil {
		ta.t.Fatal(err)
	}
}

// driver550 is what the control daemon of driver 550 can do (measured).
func driver550() mps.Capabilities {
	yes, no := mps.Answer{Known: true, Has: true}, mps.Answer{Known: true}
	return mps.Capabilities{ServerStatus: yes, PrivilegeChecks: yes, PIDFile: yes, MultiUser: no, StaticPartitions: no, ProtocolV3: no}
}

const mib = 1 << 20

// jobUsing is a job with so much memory on the first GPU, in MiB.
func jobUsing(used gpu.MiB) rules.Job {
	return rules.Job{
		Job: jobs.Job{
			Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}, GPU: uuid(0), Budget: 4096, ID: "7.0",
		},
		Memory: gpu.Known(gpu.Bytes(used * mib)), PIDs: []int{200}, Known: true, MostClients: 6, Largest: 16384, Quantum: 512,
	}
}
