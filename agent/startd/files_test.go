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

// v100s are a node with so many GPUs.
func v100s(n int, shared bool) condor.Node {
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

// TestEarlierSlotTypes: while a startd runs with the slot types of an earlier plan, the starters
// that it starts find the hook and the supervisor under their numbers, whatever the plan is now.
func TestEarlierSlotTypes(t *testing.T) {
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
	for _, n := range []condor.Node{v100s(6, true), v100s(2, false), v100s(1, true), v100s(0, true), v100s(3, true)} {
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
		if text := write(v100s(3, true)); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestFilesThatCannotBeWritten: HTCondor's configuration is written last, because it names the others, and without an
// error only. The next round writes it.
func TestFilesThatCannotBeWritten(t *testing.T) {
	for name, blocked := range map[string]func(config.Config, condor.Node) string{
		"inventory":     func(_ config.Config, n condor.Node) string { return n.Inventory },
		"directory":     func(_ config.Config, n condor.Node) string { return n.Execute },
		"job wrapper":   func(c config.Config, _ condor.Node) string { return c.Paths.JobWrapper() + ".new" },
		"closed node":   func(c config.Config, _ condor.Node) string { return ClosedFile(c.Paths) },
		"configuration": func(c config.Config, _ condor.Node) string { return c.Paths.CondorConfig() },
	} {
		dir := t.TempDir()
		cfg := config.Config{Paths: config.Paths{Run: dir, State: filepath.Join(dir, "s"), Libexec: "/usr/libexec/gpuslot"}}
		cfg.HTCondor.Manage, cfg.HTCondor.JobWrapper = true, "/usr/libexec/site-wrapper"
		n := v100s(2, true)
		n.Inventory, n.PerGPU, n.Execute = cfg.Paths.InventoryAds(), true, filepath.Join(dir, "execute")
		at := blocked(cfg, n)
		var err error
		if name == "directory" { // below it nothing can be made
			err = os.Symlink("nowhere/at/all", at)
		} else {
			err = os.MkdirAll(filepath.Join(at, "full"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		rewritten := 0
		files := Files{Rewritten: func() { rewritten++ }, Log: slog.New(slog.DiscardHandler)}
		if _, err := files.Write(t.Context(), n, cfg); err == nil || rewritten > 0 {
			t.Errorf("%s: %v, written %d times", name, err, rewritten)
		}
		if st, err := os.Stat(cfg.Paths.CondorConfig()); err == nil && st.Mode().IsRegular() {
			t.Errorf("%s: the configuration is there", name)
		}
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if text, err := files.Write(t.Context(), n, cfg); err != nil || len(text) == 0 || rewritten != 1 {
				t.Errorf("%s, afterwards: %v, written %d times", name, err, rewritten)
			}
		}
	}
}

// TestFilesOfAnImpossibleNode: no configuration is written that HTCondor could not run.
func TestFilesOfAnImpossibleNode(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{Paths: config.Paths{Run: dir, State: dir}}
	cfg.HTCondor.Manage = true
	n := v100s(2, true)
	n.CPUs, n.Inventory = 1, cfg.Paths.InventoryAds()
	text, err := Files{Log: slog.New(slog.DiscardHandler)}.Write(t.Context(), n, cfg)
	if _, none := os.Stat(cfg.Paths.CondorConfig()); err == nil || text != nil || none == nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestFilesOfASite: where the site writes HTCondor's configuration, gpuslot writes the inventory and nothing else.
func TestFilesOfASite(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{Paths: config.Paths{Run: dir, State: dir}}
	n := v100s(2, true)
	n.Inventory = cfg.Paths.InventoryAds()
	text, err := Files{Log: slog.New(slog.DiscardHandler)}.Write(t.Context(), n, cfg)
	if _, there := os.Stat(n.Inventory); err != nil || text != nil || there != nil {
		t.Errorf("%q, %v, %v", text, err, there)
	}
	if all, err := os.ReadDir(filepath.Join(dir, "condor")); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
