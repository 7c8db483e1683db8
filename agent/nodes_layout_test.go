package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/test/instances"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// steps are what happens, each with what is open meanwhile.
type steps struct {
	mu  sync.Mutex
	all []string
}

func (s *steps) add(what string, open ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, strings.Join(append([]string{what}, open...), ", open: "))
}

// usersOpen is user.slice as long as it has no rule that closes all of MIG's nodes to users.
func (n *nodesAgent) usersOpen() (open []string) {
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	if r, ok := n.kernel.by["user.slice"]; !ok || r.Major == 0 || len(r.Spared) == 0 || len(r.Own) > 0 {
		open = append(open, "user.slice")
	}
	return open
}

// undivided is a node that is not divided yet, and has a user's session or service.
func undivided(t *testing.T, config string) (*nodesAgent, *instances.GPU) {
	t.Helper()
	ta := bareTestAgent(t, 2, config)
	n := &nodesAgent{testAgent: ta, kernel: &fakeNodes{by: map[string]devices.Rule{}}, root: t.TempDir()}
	f := newFakeMIG(t, ta.hw)
	ta.mig = f
	n.driverSays(t)
	if err := os.MkdirAll(filepath.Join(n.root, "user.slice"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n, f
}

const smallLayout = "3g.20gb, 1g.5gb*2"

// TestUsersBeforeTheFirstLayout: an agent that makes a layout at its start has closed the device nodes of its devices
// to users' services before it makes them.
func TestUsersBeforeTheFirstLayout(t *testing.T) {
	n, f := undivided(t, migConfig(smallLayout, ""))
	n.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslot", UID: uint32(os.Getuid())})
	var did steps
	log := func(what string) { did.add(what, n.usersOpen()...) }
	f.Happens, n.daemons.happens = log, log
	m := &fakeManager{}
	o := n.options()
	o.Manager, o.DeviceNodes, o.cgroupRoot = m, n.kernel, n.root
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	for !m.has("ready") {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	log("ready")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	want := []string{"MIG mode", "create", "create", "create", "start " + string(uuid(1)), "ready"}
	if !slices.Equal(did.all, want) {
		t.Errorf("%q happened, want %q", did.all, want)
	}
}

// TestUsersBeforeALayoutOfAReload: so has one that divides a GPU by a reload, also in rounds meanwhile. Jobs without a
// GPU that run by then have their rule, and those that start wait for theirs.
func TestUsersBeforeALayoutOfAReload(t *testing.T) {
	n, f := undivided(t, "")
	n.again()
	n.apply(true)
	n.round()
	n.linkSupervisors()
	without := n.proc.starter(300, "slot3_1")
	n.process(without)
	link := filepath.Join(n.view.Load().config.Paths.Run, "condor", "start")
	open := func() (open []string) {
		if n.kernel.rule(without.Slot) != "[]" {
			open = append(open, "the job without a GPU")
		}
		if word, _ := os.Readlink(link); word != api.StartRequired {
			open = append(open, "jobs that start")
		}
		return append(open, n.usersOpen()...)
	}
	if got := open(); len(got) != 3 {
		t.Fatalf("before the reload only %q is open", got)
	}
	var did steps
	f.Happens = func(what string) {
		did.add(what, open()...)
		n.round() // as the one that runs beside the loop
		n.linkSupervisors()
		did.add("a round", open()...)
	}
	n.writeConfig(migConfig(smallLayout, ""))
	n.apply(true)
	n.round()
	did.add("the reload", open()...)
	want := []string{"MIG mode", "a round", "create", "a round", "create", "a round", "create", "a round", "the reload"}
	if !slices.Equal(did.all, want) {
		t.Errorf("%q happened, want %q", did.all, want)
	}
	n.writeConfig("")
	n.apply(true)
	n.round()
	if len(n.usersOpen()) == 0 || n.view.Load().isolation().Divided() {
		t.Error("the GPU is not divided any more, and the rules stay")
	}
}

// TestNoLayoutWithoutRules: while gpuslotd lacks descriptors to close device nodes, no GPU is divided. A kernel that
// accepts no rule at all is another matter.
func TestNoLayoutWithoutRules(t *testing.T) {
	n, f := undivided(t, "")
	n.again()
	n.kernel.err = syscall.EMFILE
	n.writeConfig(migConfig(smallLayout, ""))
	for i := range 3 {
		v := n.apply(i == 0)
		if waits := func(p string) bool { return strings.HasPrefix(p, "MIG layouts wait") }; f.S.Enabled || !slices.ContainsFunc(v.problems, waits) {
			t.Errorf("round %d: divided %t, %q", i, f.S.Enabled, v.problems)
		}
	}
	n.kernel.err = nil
	if v := n.apply(false); !f.S.Enabled || len(v.problems) > 0 {
		t.Errorf("afterwards divided %t, %q", f.S.Enabled, v.problems)
	}
	n, f = undivided(t, "")
	n.again()
	n.kernel.err = syscall.EPERM
	n.writeConfig(migConfig(smallLayout, ""))
	if n.apply(true); !f.S.Enabled {
		t.Error("a kernel without rules keeps the GPU from being divided")
	}
}

// TestLayoutThatWaits: a GPU that is to be divided counts as divided before it is, for as long as the plan says so.
func TestLayoutThatWaits(t *testing.T) {
	n, f := undivided(t, migConfig(smallLayout, ""))
	f.S.Holders = []gpu.Holder{{PID: 900, Command: "Xorg"}}
	n.again()
	for range 2 {
		v := n.apply(false)
		n.round()
		if v.isolation().Divided() != true || len(n.usersOpen()) > 0 || !slices.Equal(v.plan.Divided, []gpu.UUID{uuid(0)}) {
			t.Errorf("divided %v, open %q, the plan has %v: %q", v.instances.Divided(), n.usersOpen(), v.plan.Divided, v.problems)
		}
	}
	if n.hw.inv.GPUs[0].MIGEnabled {
		t.Error("the GPU was divided beside its users")
	}
}

// TestJobsBeforeALayout: a GPU on which a job runs is divided when it has ended. Until then, and should somebody else
// divide the GPU, the job opens no MIG device.
func TestJobsBeforeALayout(t *testing.T) {
	for name, first := range map[string]string{"whole": "[gpu.\"" + string(uuid(0)) + "\"]\nmode = \"whole\"\n", "shared": ""} {
		t.Run(name, func(t *testing.T) {
			n, f := undivided(t, first)
			n.again()
			n.apply(true)
			job := n.proc.starter(300, "slot1_1")
			n.grant(job, 1000, "mallory", uuid(0), 2048)
			n.process(job)
			f.Happens = func(what string) { t.Error(what, "beside the job") }
			n.writeConfig(migConfig(smallLayout, ""))
			v := n.apply(true)
			n.round()
			n.want("slot1_1", "[]")
			if all := strings.Join(v.problems, "\n"); !strings.Contains(all, "waits: slot1_1 has a job there") {
				t.Error(all)
			}
			f.Happens = func(string) {}
			if err := f.SetMode(t.Context(), uuid(0), true); err != nil {
				t.Fatal(err)
			}
			n.apply(false)
			n.round()
			n.want("slot1_1", "[]")
			n.end(job)
			if n.apply(false); n.profiles() != "1g.5gb 1g.5gb 3g.20gb" {
				t.Errorf("there are %s", n.profiles())
			}
		})
	}
}
