package startd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// nodeFor is a node of n V100S as a configuration makes it, each GPU with a UUID
// that begins differently.
func nodeFor(t *testing.T, gpus int, text string) condor.Node {
	t.Helper()
	cfg, err := config.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	inv := gpu.Inventory{
		Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4",
		Host: gpu.Host{Name: "wn1.example.org", CPUs: 64, Memory: 524288},
	}
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, gpu.GPU{
			UUID: spread(i), Index: i, Name: "Tesla V100S-PCIE-32GB", PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", 0x10+i)),
			Memory: 32768, Capability: gpu.Volta, ComputeMode: gpu.ComputeModeDefault,
		})
	}
	p, err := plan.Build(cfg, inv)
	if err != nil {
		t.Fatal(err)
	}
	return Node(p, cfg)
}

func spread(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n+10))
}

// runningAs are the startds of a node that runs as planned.
func runningAs(t *testing.T, n condor.Node) []api.StatusStartd {
	t.Helper()
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	var out []api.StatusStartd
	for _, s := range condor.Startds(n) {
		now := api.StatusStartd{Name: s.Name, Daemon: s.Daemon(), Plans: []string{s.Plan}, Layout: s.Layout, Configs: []string{condor.ConfigOf(text)}}
		for _, u := range s.Devices {
			now.GPUs = append(now.GPUs, string(u))
		}
		out = append(out, now)
	}
	return out
}

const perGPU = "[htcondor]\nlayout = \"startd-per-gpu\"\n"

// TestChanges: what has to happen at which startd, and what waits.
func TestChanges(t *testing.T) {
	job := api.ChangeJob{Slot: "slot1_1", ID: "7.0"}
	first, second := string(spread(0)), string(spread(1))
	for name, tt := range map[string]struct {
		before, after string
		running       func([]api.StatusStartd) []api.StatusStartd
		want          []string // daemon, need, what blocks it
	}{
		"nothing":                  {"", "", nil, nil},
		"one startd, fewer shares": {"", "[sharing]\nshares = 4\n", nil, []string{"STARTD restart"}},
		"the rules of START only":  {"", "[request_vram]\nwithout_request = \"share\"\n[sharing]\nlargest_request = 8192\n", nil, []string{"STARTD reconfig"}},
		"one GPU of two":           {perGPU, perGPU + "[gpu.\"" + first + "\"]\nshares = 3\n", nil, []string{"STARTD reconfig", "STARTD_GPU" + strings.ToUpper(first[4:12]) + " restart"}},
		"a GPU becomes whole": {perGPU, perGPU + "[gpu.\"" + second + "\"]\nmode = \"whole\"\n", nil,
			[]string{"STARTD restart STARTD_GPU" + strings.ToUpper(second[4:12]), "STARTD_GPU" + strings.ToUpper(first[4:12]) + " reconfig", "STARTD_GPU" + strings.ToUpper(second[4:12]) + " restart"}},
		"to a startd per GPU": {"", perGPU, nil, []string{"STARTD restart",
			"STARTD_GPU" + strings.ToUpper(first[4:12]) + " start STARTD", "STARTD_GPU" + strings.ToUpper(second[4:12]) + " start STARTD"}},
		"back to one startd, with a job": {perGPU, "", func(r []api.StatusStartd) []api.StatusStartd {
			r[1].Jobs = []api.ChangeJob{job}
			return r
		}, []string{"STARTD restart STARTD_GPU" + strings.ToUpper(first[4:12]), "STARTD_GPU" + strings.ToUpper(first[4:12]) + " stop STARTD_GPU" + strings.ToUpper(first[4:12]),
			"STARTD_GPU" + strings.ToUpper(second[4:12]) + " stop STARTD_GPU" + strings.ToUpper(first[4:12])}},
		"a startd that only read the new configuration": {"", "[sharing]\nshares = 4\n", func([]api.StatusStartd) []api.StatusStartd {
			now := runningAs(t, nodeFor(t, 2, "[sharing]\nshares = 4\n"))
			now[0].Layout = runningAs(t, nodeFor(t, 2, ""))[0].Layout
			return now
		}, []string{"STARTD restart"}},
		"HTCondor's own does not answer": {"", "[sharing]\nshares = 4\n", func([]api.StatusStartd) []api.StatusStartd { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			running := runningAs(t, nodeFor(t, 2, tt.before))
			if tt.running != nil {
				running = tt.running(running)
			}
			var got []string
			for _, c := range Changes(nodeFor(t, 2, tt.after), running, config.ChangesNever) {
				got = append(got, strings.TrimSpace(c.Daemon+" "+c.Need+" "+c.Blocked))
				if c.Says == "" {
					t.Errorf("%s says nothing", c.Daemon)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
