package mig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestOwners: what the book of this boot has is ours, all else another's.
func TestOwners(t *testing.T) {
	const u = "GPU-000000a0-0000-4000-8000-000000000000"
	at := func(n int) *int { return &n }
	inv := gpu.Inventory{GPUs: []gpu.GPU{{UUID: "GPU-000000a1-0000-4000-8000-000000000000"}, {UUID: u, MIGDevices: []gpu.MIGDevice{
		{Profile: "1g.5gb"}, {Profile: "3g.20gb", Start: at(0)}, {Profile: "1g.5gb", Start: at(4)},
	}}}}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "mig"), 0o755); err != nil {
		t.Fatal(err)
	}
	journal := `{"schema": "gpuslot-mig/1", "gpu": %q, "boot": "now", "generation": 1, "owned": [{"profile": 9, "start": 0, "generation": 1}]}`
	for name, c := range map[string]struct {
		text, boot string
		want       [3]gpu.Owner
	}{
		"no book":               {"", "now", [3]gpu.Owner{"", gpu.Foreign, gpu.Foreign}},
		"its book":              {fmt.Sprintf(journal, u), "now", [3]gpu.Owner{"", gpu.Ours, gpu.Foreign}},
		"of another boot":       {fmt.Sprintf(journal, u), "later", [3]gpu.Owner{"", gpu.Foreign, gpu.Foreign}},
		"a book that is broken": {"{", "now", [3]gpu.Owner{}},
	} {
		file := filepath.Join(dir, "mig", u+".json")
		_ = os.Remove(file)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := mig.Executor{Dir: dir, Boot: c.boot}.Owners(inv).GPUs[1].MIGDevices
		for i, d := range got {
			if d.Owner != c.want[i] {
				t.Errorf("%s: device %d is %q, want %q", name, i, d.Owner, c.want[i])
			}
		}
	}
	if inv.GPUs[1].MIGDevices[1].Owner != "" {
		t.Error("Owners changed its argument")
	}
}
