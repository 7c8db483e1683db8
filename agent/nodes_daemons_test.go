package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// daemonsCgroup is that of HTCondor's daemons, as 25.14.1 runs under systemd.
const daemonsCgroup = "/system.slice/condor.service/leaf"

// daemonsIn starts HTCondor's daemons in a cgroup.
func (n *nodesAgent) daemonsIn(cgroup string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, cgroup), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.Add(proctree.Process{
		PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: cgroup})
}

// wantDaemons wants what may be opened of MIG's nodes in the cgroup of HTCondor's daemons; "none" without a rule about
// them.
func (n *nodesAgent) wantDaemons(rule string) {
	n.t.Helper()
	got := "none"
	if r, ok := n.kernel.by[filepath.Base(daemonsCgroup)]; ok && r.Major != 0 {
		got = fmt.Sprint(r.Own)
	}
	if got != rule {
		n.t.Errorf("HTCondor's daemons may open %s, want %s: %s", got, rule, n.said.String())
	}
}

// TestNodesOfDaemons: what HTCondor runs outside the cgroups of jobs opens no node of MIG,
// jobs open their own; a rule stands while the agent restarts, and follows HTCondor's restart.
func TestNodesOfDaemons(t *testing.T) {
	n := newNodesAgent(t)
	n.daemonsIn(daemonsCgroup)
	n.round()
	n.wantDaemons("[]")
	small, own := n.device("1g.5gb", 0)
	n.job(100, "slot1_1", small)
	n.round()
	n.want("slot1_1", own)
	n.wantDaemons("[]")
	n.again()
	n.wantDaemons("[]")
	n.round()
	n.wantDaemons("[]")

	n.proc.End(proctree.Startd)
	n.round()
	n.wantDaemons("[]") // the master starts another startd there
	old := filepath.Join(n.root, daemonsCgroup)
	if err := os.Rename(old, old+".ended"); err != nil {
		t.Fatal(err)
	}
	delete(n.kernel.by, filepath.Base(daemonsCgroup)) // it goes with its cgroup
	n.round()
	n.wantDaemons("none")
	n.daemonsIn(daemonsCgroup)
	n.round()
	n.wantDaemons("[]")
	if n.warns() != "" {
		t.Errorf("warns: %s", n.warns())
	}
}

// TestNodesOfDaemonsOpen: the rule goes when the node has no MIG devices any more, or gpuslot
// leaves it, also one of an earlier agent.
func TestNodesOfDaemonsOpen(t *testing.T) {
	n := newNodesAgent(t)
	n.daemonsIn(daemonsCgroup)
	n.round()
	n.wantDaemons("[]")
	v := *n.view.Load()
	v.instances = nil
	n.view.Store(&v)
	n.round()
	n.wantDaemons("none")

	n.again()
	n.round()
	n.wantDaemons("[]")
	n.again()
	if err := n.nodes.OpenOutside(); err != nil {
		t.Fatal(err)
	}
	n.wantDaemons("none")
}

// TestNodesOfDaemonsNotClosed: where a rule would harm others than users' code, or cannot be
// put, there is none, and status says why.
func TestNodesOfDaemonsNotClosed(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup string
		bend   func(*nodesAgent)
		want   string
	}{
		"the root cgroup":   {cgroup: "/", want: "daemons are in no cgroup of their own"},
		"another namespace": {cgroup: "/../condor.service/leaf", want: "daemons are in no cgroup of their own"},
		"a session":         {cgroup: "/user.slice/user-0.slice/session-3.scope", want: "do not run in a service of systemd"},
		"refused by the kernel": {cgroup: daemonsCgroup, want: "attach: busy", bend: func(n *nodesAgent) {
			n.kernel.putErr = errors.New("attach: busy")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodesAgent(t)
			n.daemonsIn(c.cgroup)
			if c.bend != nil {
				c.bend(n)
			}
			n.round()
			n.round()
			if len(n.kernel.by) != 0 {
				t.Errorf("rules: %v", n.kernel.by)
			}
			w := strings.Join(n.status().Warnings, "\n")
			if strings.Count(w, "outside the cgroups of jobs") != 1 || !strings.Contains(w, c.want) {
				t.Errorf("warnings: %s", w)
			}
			if got := strings.Count(n.said.String(), "WARN"); got != 1 {
				t.Errorf("said %d times:\n%s", got, n.said.String())
			}
		})
	}
}

// TestNodesOfUsers: the service managers of users, cron and at open no node of MIG, except for root.
// The rule goes where HTCondor's jobs run below, and when gpuslot leaves the node.
func TestNodesOfUsers(t *testing.T) {
	n := newNodesAgent(t)
	for _, dir := range []string{"user.slice", "system.slice/crond.service"} {
		if err := os.MkdirAll(filepath.Join(n.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := func(dir string, closed bool) {
		t.Helper()
		r, ok := n.kernel.by[dir]
		if ok != closed || ok && (len(r.Spared) == 0 || len(r.Own) > 0) {
			t.Errorf("%s: rule %v %+v, want one: %v\n%s", dir, ok, r, closed, n.said.String())
		}
	}
	n.round()
	want("user.slice", true)
	want("crond.service", true)
	if n.warns() != "" {
		t.Errorf("warns: %s", n.warns())
	}
	n.again()
	want("user.slice", true)
	if err := n.nodes.OpenOutside(); err != nil {
		t.Fatal(err)
	}
	want("user.slice", false)
	want("crond.service", false)

	n.round()
	want("user.slice", true)
	n.asks("slot1_1", "/user.slice/user-0.slice/session-3.scope"+proctree.CgroupOf("slot1_1"))
	want("user.slice", false)
	want("crond.service", true)
	if !strings.Contains(n.warns(), "/user.slice: HTCondor's jobs run below it") {
		t.Errorf("warns: %s", n.warns())
	}
}

// asks lets a process of a starter in a cgroup ask for its job's start, and looks around once.
func (n *nodesAgent) asks(slot, cgroup string) (refused string) {
	n.t.Helper()
	st := n.proc.starter(100, slot)
	if err := os.MkdirAll(filepath.Join(n.root, cgroup), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "supervise", Cgroup: cgroup})
	refused = n.starts(st, slot)
	n.round()
	return refused
}

// setting gives HTCondor a configuration of one knob.
func (n *nodesAgent) setting(name, value string) {
	v := *n.view.Load()
	v.settings = condor.Settings{name: {Name: strings.ToUpper(name), Value: value}}
	n.view.Store(&v)
}

// TestStartFromDaemons: users' code in the cgroup of HTCondor's daemons that asks for its job's
// start is refused before anything is done, whether a job was seen before or not.
func TestStartFromDaemons(t *testing.T) {
	n := newNodesAgent(t)
	n.daemonsIn(daemonsCgroup)
	n.round()
	for _, before := range []string{"nothing", "a restart", "a job"} {
		switch before {
		case "a restart":
			n.proc.End(100)
			n.again()
		case "a job":
			if why := n.asks("slot1_1", proctree.CgroupOf("slot1_1")); why != "" {
				t.Error(why)
			}
		}
		if why := n.asks("slot1_1", daemonsCgroup); !strings.HasPrefix(why, "HTCondor gives each job of this node a cgroup of its own, and the caller is in none of them") {
			t.Errorf("after %s: refused %q", before, why)
		}
		n.wantDaemons("[]")
		if n.warns() != "" || n.counts("missing") != 0 || strings.Contains(n.said.String(), "WARN") {
			t.Errorf("after %s: warns %q: %s", before, n.warns(), n.said.String())
		}
	}
	for _, moved := range []string{"/user.slice/user-1001.slice/user@1001.service/app.slice/x.scope",
		"/user.slice/user-1001.slice/user@1001.service" + proctree.CgroupOf("slot1_1")} {
		if why := n.asks("slot1_1", moved); !strings.HasPrefix(why, "HTCondor gives each job") {
			t.Errorf("a job that its account's service manager moved to %s: refused %q", moved, why)
		}
	}
	n.kernel.err = errors.New("no BPF")
	n.round()
	if why := n.asks("slot1_1", daemonsCgroup); why != "" {
		t.Errorf("refused where no rule is promised: %s", why)
	}
	n.kernel.err = nil
	n.round()
	n.wantDaemons("[]") // nobody is taken for a job there
}

// TestNodesOfDaemonsAndJobs: where HTCondor gives jobs no cgroup, they keep their nodes.
func TestNodesOfDaemonsAndJobs(t *testing.T) {
	for name, off := range map[string]func(*nodesAgent){
		"BASE_CGROUP is empty": func(n *nodesAgent) { n.setting("base_cgroup", "") },
		"a read-only tree": func(n *nodesAgent) {
			st := n.proc.starter(100, "slot1_1")
			text := "329 322 0:26 / " + n.root + " ro shared:9 - cgroup2 cgroup2 rw\n"
			if err := os.WriteFile(filepath.Join(n.proc.Root, fmt.Sprint(st.PID), "mountinfo"), []byte(text), 0o644); err != nil {
				n.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodesAgent(t)
			n.daemonsIn(daemonsCgroup)
			n.round()
			off(n)
			if why := n.asks("slot1_1", daemonsCgroup); why != "" {
				t.Error(why)
			}
			n.wantDaemons("none")
			if !strings.Contains(n.warns(), "HTCondor gives jobs no cgroup of their own beside that of its daemons") {
				t.Errorf("warns %q", n.warns())
			}
		})
	}
	n := newNodesAgent(t)
	n.daemonsIn(daemonsCgroup)
	n.round()
	n.setting("base_cgroup", "system.slice/condor.service/leaf/htcondor")
	n.asks("slot1_1", daemonsCgroup+proctree.CgroupOf("slot1_1"))
	n.wantDaemons("none")
	n.asks("slot1_1", proctree.CgroupOf("slot1_1"))
	n.wantDaemons("[]")
}
