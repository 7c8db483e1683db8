package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// observedBy is a configuration that observes the nodes of a name.
func observedBy(t *testing.T, host string) config.Config {
	t.Helper()
	cfg, err := config.Parse("gpuslot.toml", []byte("[host.\""+host+"\"]\nmode = \"observe\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestWantsToObserve: the plan says it, and before there is one the configuration, for this host.
func TestWantsToObserve(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		view view
		want bool
	}{
		"the plan":                {view{planned: true, plan: plan.Plan{Observe: true}}, true},
		"another plan":            {view{planned: true, next: observedBy(t, "*")}, false},
		"no plan yet":             {view{next: observedBy(t, here)}, true},
		"no plan yet, other host": {view{next: observedBy(t, "another-"+here)}, false},
		"nothing":                 {view{}, false},
	} {
		if got := c.view.wantsToObserve(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	v := view{planned: true, plan: plan.Plan{Host: gpu.Host{Name: "wn1.example.org"}}}
	if got := v.host(); got != "wn1.example.org" {
		t.Error(got)
	}
}

// TestGPUsOfAView: a MIG device is a part of its GPU. Each GPU is there once, also one in MIG mode without a device.
func TestGPUsOfAView(t *testing.T) {
	v := view{planned: true, plan: plan.Plan{
		MIG: []plan.MIGGPU{{UUID: "GPU-1"}, {UUID: "GPU-2"}},
		GPUs: []plan.GPU{
			{UUID: "GPU-3", PCI: "0000:13:00.0", Mode: config.ModeMPS}, {UUID: "MIG-1", Parent: "GPU-1", PCI: "0000:11:00.0", Device: "MIG-9"},
			{UUID: "MIG-2", Parent: "GPU-1", PCI: "0000:11:00.0"},
		},
	}}
	if got := v.physicals(); !slices.Equal(got, []gpu.UUID{"GPU-1", "GPU-2", "GPU-3"}) {
		t.Errorf("%q", got)
	}
	for u, want := range map[gpu.UUID]gpu.UUID{"MIG-1": "GPU-1", "GPU-3": "GPU-3", "GPU-9": "GPU-9"} {
		if got := v.physical(u); got != want {
			t.Errorf("%s is of %s, want %s", u, got, want)
		}
	}
	n := v.faults()
	if !n.Planned || len(n.GPUs) != 3 || len(n.PCI) != 2 || n.PCI["0000:11:00.0"] != "GPU-1" || n.PCI["0000:13:00.0"] != "GPU-3" {
		t.Errorf("%+v", n)
	}
	if !v.shared("GPU-3") || v.shared("MIG-1") || v.shared("GPU-9") {
		t.Error("not GPU 3 alone is shared")
	}
}

// TestPrivilegeChecks: they are there only if that is known of a control daemon that was tried.
func TestPrivilegeChecks(t *testing.T) {
	for name, c := range map[string]struct {
		tried, known, has, want bool
	}{
		"there": {true, true, true, true}, "not there": {true, true, false, false}, "not known": {true, false, true, false},
		"not tried": {false, true, true, false},
	} {
		v := view{can: capability.Set{Tried: c.tried, MPS: mps.Capabilities{PrivilegeChecks: mps.Answer{Known: c.known, Has: c.has}}}}
		if got := v.privilegeChecks(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestHTCondorOfAView: an HTCondor that is not known or not good enough is asked for again, a good one now and then.
// One that was not tried is a problem, no refusal.
func TestHTCondorOfAView(t *testing.T) {
	good, old, newer := condor.Version{Major: 25, Minor: 14, Patch: 1}, condor.Version{Major: 23, Minor: 9, Patch: 6}, condor.Version{Major: 99}
	for name, c := range map[string]struct {
		version       condor.Version
		rounds        uint64
		stale         bool
		text, refused string
		problems      int
	}{
		"good":           {good, 39, false, "25.14.1", "", 0},
		"after a while":  {good, 40, true, "25.14.1", "", 0},
		"not known":      {condor.Version{}, 1, true, "", "", 0},
		"too old":        {old, 1, true, "23.9.6", "upgrade to", 0},
		"of another day": {newer, 1, false, "99.0.0", "", 1},
	} {
		v := view{condor: c.version, rounds: c.rounds}
		if v.condorStale() != c.stale || v.condorText() != c.text {
			t.Errorf("%s: stale %t, %q", name, v.condorStale(), v.condorText())
		}
		if got := v.refused(); !strings.Contains(got, c.refused) || (got == "") != (c.refused == "") || len(v.problems) != c.problems {
			t.Errorf("%s: %q, problems %q", name, got, v.problems)
		}
	}
}

// TestSupervised: jobs ask for their start where gpuslot writes HTCondor's configuration, too.
func TestSupervised(t *testing.T) {
	for _, supervise := range []bool{false, true} {
		for _, manage := range []bool{false, true} {
			var v view
			v.config.HTCondor.Supervise, v.config.HTCondor.Manage = supervise, manage
			if v.isolation().Supervised != (supervise && manage) || v.limits().Supervised != supervise {
				t.Errorf("supervise = %t, manage = %t: %+v, %+v", supervise, manage, v.isolation(), v.limits())
			}
		}
	}
}

// TestOverrides: what the site's settings take away is known only of what was written, and while they can be read.
func TestOverrides(t *testing.T) {
	full := view{written: true, settings: condor.Settings{}, generated: []byte("A = 1\n")}
	full.config.HTCondor.Manage = true
	written, managed, read := full, full, full
	written.written, managed.config.HTCondor.Manage, read.settings = false, false, nil
	if len(full.overrides()) == 0 {
		t.Error("HTCondor does not read what was written, and that is nothing")
	}
	for name, v := range map[string]view{"not written": written, "not managed": managed, "not read": read} {
		if got := v.overrides(); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSameFile: whether gpuslot.toml has changed while the agent waits for that.
func TestSameFile(t *testing.T) {
	dir := t.TempDir()
	file, at := filepath.Join(dir, "gpuslot.toml"), time.Unix(1000, 0)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if !sameFile(nil, file) {
		t.Error("there is none still, which is a change")
	}
	write("a")
	was, err := os.Stat(file)
	if err != nil || !sameFile(was, file) || sameFile(nil, file) {
		t.Errorf("%v: it has changed, or its beginning is no change", err)
	}
	for name, change := range map[string]func(){
		"its size": func() { write("ab") },
		"its time": func() { at = at.Add(time.Second); write("a") },
		"another file": func() {
			if err := os.Rename(file, file+".old"); err != nil {
				t.Fatal(err)
			}
			write("a")
		},
		"none": func() { _ = os.Remove(file) },
	} {
		at = time.Unix(1000, 0)
		write("a")
		if was, err = os.Stat(file); err != nil {
			t.Fatal(err)
		}
		if change(); sameFile(was, file) {
			t.Errorf("%s is no change", name)
		}
	}
}
