package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// obedient makes the fake daemons start as a unit would, with the flags of
// their files; deaf ones start without.
func (ta *testAgent) obedient(deaf bool) (restarts *int) {
	restarts = new(int)
	ta.daemons.happens = func(what string) {
		verb, name, _ := strings.Cut(what, " ")
		if verb == "restart" {
			*restarts++
		}
		if verb != "start" && verb != "restart" {
			return
		}
		args := []string{"nvidia-cuda-mps-control", "-f"}
		if !deaf {
			args = append(args, daemons.Flags(ta.config(), gpu.UUID(name))...)
		}
		ta.proc.Add(proctree.Process{PID: ta.daemons.next, Parent: 1, Comm: "nvidia-cuda-mps", Args: args, Started: uint64(ta.daemons.next)})
	}
	return restarts
}

func (ta *testAgent) config() config.Paths {
	c, err := config.Load(ta.options().ConfigFile)
	if err != nil {
		ta.t.Fatal(err)
	}
	return c.Paths
}

const severalAccounts = "[gpu.\"GPU-00000000-0000-4000-8000-000000000000\"]\ntenancy = \"multi-user\"\n"

func TestDaemonsStartWithTheirFlags(t *testing.T) {
	ta := bareTestAgent(t, 2, severalAccounts)
	ta.hw.inv.Driver = "555.58.02"
	ta.can.MultiUser = mps.Answer{Known: true, Has: true}
	restarts := ta.obedient(false)
	ta.restart()
	flag := func(n int) bool {
		args, err := ta.Agent.proc.Args(ta.view.Load().daemons[uuid(n)].Checked.PID)
		if err != nil || len(args) == 0 {
			t.Fatalf("GPU %d: its daemon's flags are not known: %v", n, err)
		}
		return slices.Contains(args, "-multiuser-server")
	}
	if !flag(0) || flag(1) || *restarts != 0 {
		t.Fatalf("flags %v %v after %d restarts", flag(0), flag(1), *restarts)
	}

	// Another tenancy while a job runs: closed until it ends, then restarted.
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.writeConfig("")
	ta.apply(true)
	if why := ta.reason(0); !strings.Contains(why, "serves several accounts at once, but tenancy = \"one-at-a-time\": it restarts when the jobs there have ended") {
		t.Errorf("reason %q", why)
	}
	if *restarts != 0 || ta.reason(1) != "" {
		t.Errorf("%d restarts, the other GPU: %q", *restarts, ta.reason(1))
	}
	ta.proc.End(100)
	ta.sweeper.now()
	ta.apply(false)
	if flag(0) || *restarts != 1 || ta.reason(0) != "" {
		t.Errorf("flag %v after %d restarts, %q", flag(0), *restarts, ta.reason(0))
	}
	if got := daemons.Flags(ta.config(), uuid(0)); got != nil {
		t.Errorf("flags stay: %q", got)
	}
}

// Clients that no slot holds are in the way as well.
func TestDaemonWithClientsKeepsItsFlags(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.hw.inv.Driver = "555.58.02"
	ta.can.MultiUser = mps.Answer{Known: true, Has: true}
	restarts := ta.obedient(false)
	ta.restart()
	ta.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 70, Started: 1}, Status: mps.Active, Clients: []int{71}}}
	})
	ta.writeConfig(severalAccounts)
	ta.apply(true)
	if why := ta.reason(0); *restarts != 0 || !strings.Contains(why, "restarts when the jobs there have ended") {
		t.Errorf("%d restarts, reason %q", *restarts, why)
	}
}

// A unit that passes no flags on is not started again and again.
func TestDeafUnit(t *testing.T) {
	ta := bareTestAgent(t, 1, severalAccounts)
	ta.hw.inv.Driver = "555.58.02"
	ta.can.MultiUser = mps.Answer{Known: true, Has: true}
	restarts := ta.obedient(true)
	ta.restart()
	for range 3 {
		ta.apply(false)
	}
	if why := ta.reason(0); *restarts != 1 || !strings.Contains(why, "see that gpuslot-mps@.service passes on $GPUSLOT_MPS_FLAGS") {
		t.Errorf("%d restarts, reason %q", *restarts, why)
	}
}
