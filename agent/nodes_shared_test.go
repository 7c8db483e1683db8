package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// closedToUsers are the GPUs whose nodes users' programs outside of jobs do not open, by their numbers; none without a
// rule.
func (n *nodesAgent) closedToUsers() string {
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	r, ok := n.kernel.by["user.slice"]
	if !ok {
		return "none"
	}
	var minors []uint32
	for _, node := range r.Closed {
		minors = append(minors, node.Minor)
	}
	if len(r.Spared) == 0 || r.Major != 0 {
		return fmt.Sprintf("%+v", r)
	}
	return fmt.Sprint(minors)
}

func (n *nodesAgent) wantClosedToUsers(when, want string) {
	n.t.Helper()
	n.round()
	if got := n.closedToUsers(); got != want {
		n.t.Errorf("%s: closed to users are %s, want %s: %s", when, got, want, n.said.String())
	}
	if w := n.warns(); w != "" {
		n.t.Errorf("%s: warns: %s", when, w)
	}
}

// TestSharedGPUsOfUsers: the nodes of undivided GPUs that jobs share are closed to HTCondor's daemons and to users'
// programs outside of jobs, not those of whole GPUs, nor of one that a desktop uses. That follows a reload, and stands
// while the agent restarts.
func TestSharedGPUsOfUsers(t *testing.T) {
	of := func(n int, text string) string { return fmt.Sprintf("[gpu.%q]\n%s\n", uuid(n), text) }
	n, _ := undivided(t, "")
	n.daemonsIn(daemonsCgroup)
	n.again()
	n.wantClosedToUsers("both are shared", "[0 1]")
	if r := n.kernel.by[filepath.Base(daemonsCgroup)]; len(r.Closed) != 2 {
		t.Errorf("HTCondor's daemons: %+v", r)
	}
	for _, c := range []struct{ when, config, want string }{
		{"one is whole", of(0, `mode = "whole"`), "[1]"},
		{"a desktop uses one", of(1, "reserved_vram = 1500"), "[0]"},
		{"the default reserve", of(1, "reserved_vram = 64"), "[0 1]"},
		{"all are whole", "[sharing]\nmode = \"whole\"\n", "none"},
		{"by turns", of(0, `mode = "elastic"`) + of(1, `mode = "whole"`), "[0]"},
		{"shared again", "", "[0 1]"},
	} {
		n.writeConfig(c.config)
		if v := n.apply(true); v.configError != "" {
			t.Fatal(v.configError)
		}
		n.wantClosedToUsers(c.when, c.want)
	}
	n.again()
	if got := n.closedToUsers(); got != "[0 1]" {
		t.Errorf("after a restart: %s", got)
	}
	n.wantClosedToUsers("after a restart", "[0 1]")
	if v := n.view.Load(); v.isolation().Divided() || v.startWord(true) != "" {
		t.Errorf("jobs wait for their start: %q", v.startWord(true))
	}
	if err := n.nodes.OpenOutside(); err != nil || n.closedToUsers() != "none" {
		t.Errorf("gpuslot leaves the node: %v, %s", err, n.closedToUsers())
	}
}

// TestSharedGPUsObserved: on an observed node nothing is closed.
func TestSharedGPUsObserved(t *testing.T) {
	n, _ := undivided(t, observing)
	n.again()
	n.wantClosedToUsers("observed", "none")
}

// TestSharedGPUsNotRead: a GPU that does not answer stays closed, and so do all while an agent that starts reads none.
func TestSharedGPUsNotRead(t *testing.T) {
	n, _ := undivided(t, "")
	n.again()
	n.wantClosedToUsers("at first", "[0 1]")
	whole := n.hw.inv
	one := whole
	one.GPUs = slices.Clone(whole.GPUs[1:])
	n.sees(one, nil)
	n.wantClosedToUsers("one does not answer", "[0 1]")
	n.sees(whole, nil)
	n.hw.set(gpu.Inventory{}, errors.New("Driver/library version mismatch"))
	n.again()
	if n.view.Load().planned {
		t.Fatal("it has a plan")
	}
	n.kernel.by["user.slice"] = devices.Rule{}
	n.wantClosedToUsers("an agent that reads none", "[0 1]")
	n.sees(whole, nil)
	n.wantClosedToUsers("all answer", "[0 1]")
}

// TestSharedGPUsWithoutBPF: jobs run, and status says why users can open their GPUs.
func TestSharedGPUsWithoutBPF(t *testing.T) {
	n, _ := undivided(t, "")
	n.kernel.err = errors.New("load a device program: no BPF")
	n.again()
	for range 2 {
		n.round()
	}
	if w := strings.Join(n.status().Warnings, "\n"); strings.Count(w, "Programs outside the cgroups of jobs can open device nodes") != 1 || !strings.Contains(w, "no BPF") {
		t.Errorf("warnings: %s", w)
	}
	if st := n.job(100, "slot1_1", uuid(0)); n.starts(st, "slot1_1") != "" || n.reason(0) != "" {
		t.Errorf("the GPU is closed: %q", n.reason(0))
	}
}

// TestUsersBeforeReady: an agent has closed shared GPUs to users' services before it starts a control daemon, and
// before it says that it is ready: cron and at start after that.
func TestUsersBeforeReady(t *testing.T) {
	n, _ := undivided(t, "")
	n.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslot", UID: uint32(os.Getuid())})
	var did steps
	log := func(what string) { did.add(what, n.closedToUsers()) }
	n.daemons.happens = log
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
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(did.all) != 2 || slices.ContainsFunc(did.all, func(s string) bool { return !strings.HasSuffix(s, "[0 1]") }) {
		t.Errorf("%q happened", did.all)
	}
}
