package plan_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestPlanOfEveryCard prints what the plan makes of each capture and each model, in a table that
// can be checked by hand: testdata/every-card.txt.
func TestPlanOfEveryCard(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"choose\"\nmig_mps = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, "Each row: POOL is TOTAL - DRIVER - SERVER - MARGIN, rounded down to 512 MiB. SHARES is POOL / 4096,\n"+
		"8 at most. SHARE is POOL / SHARES, rounded down to 512 MiB. CLIENTS is what each share may have of the\n"+
		"59 MPS clients of CUDA 13 (one of 60 is for tools); a MIG device has its compute slices' part of them.")
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	print := func(from, name string, inv gpu.Inventory) {
		p, err := plan.Build(cfg, inv)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, g := range p.GPUs {
			driver := fmt.Sprint(int64(g.Kept.Driver))
			if g.Kept.Assumed {
				driver += " assumed"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", from, name, g.Profile, g.Memory, driver, g.Kept.Server,
				g.Kept.Margin, g.Pool, g.Shares, g.DefaultRequest, g.MaxClients)
		}
	}
	fmt.Fprintln(w, "\nFROM\tGPU\tMIG\tTOTAL\tDRIVER\tSERVER\tMARGIN\tPOOL\tSHARES\tSHARE\tCLIENTS\t")
	all := captures(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		inv, _ := all[name].node()
		print("capture", all[name].Name, inv)
	}
	for _, name := range slices.Sorted(maps.Keys(published)) {
		m := published[name]
		g := gpu.GPU{UUID: uuid(1), Name: name, PCI: "0000:1a:00.0", Memory: m.memory, Reserved: &m.reserved,
			Capability: gpu.ComputeCapability{Major: m.major, Minor: m.minor}}
		inv := gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn-gpu1", CPUs: 64, Memory: 1 << 20}, Driver: "590.48.01",
			CUDA: "13.1", GPUs: []gpu.GPU{g}}
		print("listing", name, inv)
		inv.GPUs[0].Reserved = nil
		print("listing", name, inv)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/every-card.txt"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
