package startd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestEarlierSlotTypes: while a startd runs with the slot types of an earlier plan, the starters
// that it starts find the hook and the supervisor under their numbers, whatever the plan is now.
func TestEarlierSlotTypes(t *testing.T) {
	kinds := func(n int, shared bool) condor.Node {
		node := condor.Node{Version: "0.1.0", CPUs: 96, Memory: 385024, CPUOnly: condor.Share{CPUs: 8, Memory: 32768},
			WithoutRequest: condor.WithoutRequestRefuse, PipeRoot: "/run/gpuslot/mps", Libexec: "/usr/libexec/gpuslot",
			Supervise: true}
		for i := range n {
			node.Devices = append(node.Devices, condor.Device{
				UUID: gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1)), Index: i, Name: "V100",
				PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", i+1)), Memory: 32768, Shared: shared, Shares: 7, Pool: 32256,
				LargestRequest: gpu.MiB(32256 - i), DefaultRequest: 4608, Share: condor.Share{CPUs: 4, Memory: 16384},
			})
		}
		return node
	}
	dir := t.TempDir()
	cfg := config.Config{Paths: config.Paths{Run: dir, State: dir, Libexec: "/usr/libexec/gpuslot"}}
	cfg.HTCondor.Manage = true
	rewritten := 0
	write := func(n condor.Node) string {
		t.Helper()
		n.Inventory = cfg.Paths.InventoryAds()
		files := Files{Rewritten: func() { rewritten++ }, Log: slog.New(slog.DiscardHandler)}
		text, err := files.Write(context.Background(), n, cfg)
		if err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(cfg.Paths.CondorConfig())
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := condor.ExecutionPoint(n); err != nil || condor.ConfigOf(written) != condor.ConfigOf(plain) ||
			condor.ConfigOf(text) != condor.ConfigOf(plain) {
			t.Errorf("the startd would publish another configuration than is wanted: %v", err)
		}
		return string(written)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Paths.CondorConfig()), 0o755); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, n := range []condor.Node{kinds(6, true), kinds(2, false), kinds(1, true), kinds(0, true), kinds(3, true)} {
		text := write(n)
		for line := range strings.Lines(text) {
			knob, _, _ := strings.Cut(line, " = ")
			if strings.HasSuffix(knob, ".STARTER_JOB_HOOK_KEYWORD") || strings.HasSuffix(knob, ".USER_JOB_WRAPPER") ||
				knob == "GPUSLOT_HOOK_PREPARE_JOB" {
				lines[line] = true
			}
		}
		for line := range lines {
			if strings.Count(text, line) != 1 {
				t.Errorf("with %d GPUs: %d times %q", len(n.Devices), strings.Count(text, line), line)
			}
		}
		before := rewritten
		if again := write(n); again != text || rewritten != before {
			t.Errorf("with %d GPUs the second time another text", len(n.Devices))
		}
	}
	for _, want := range []string{"slot_type_106.STARTER_JOB_HOOK_KEYWORD = GPUSLOT\n", "slot_type_106.USER_JOB_WRAPPER = ",
		"slot_type_501.STARTER_JOB_HOOK_KEYWORD = GPUSLOT\n"} {
		if text := write(kinds(3, true)); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
