//go:build cgo && gpu

package nvml

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestContract holds Inventory to nvidia-smi on a machine with a GPU:
// go test -tags gpu ./gpu/nvml. It changes nothing.
func TestContract(t *testing.T) {
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	inv, unreadable, err := l.Inventory(t.Context())
	if err != nil || len(unreadable) > 0 {
		t.Fatal(err, unreadable)
	}
	if len(inv.GPUs) == 0 || inv.Driver == "" || inv.CUDA == "" {
		t.Fatalf("%+v", inv)
	}
	lines := strings.Split(strings.TrimSpace(smi(t, "uuid,name,pci.bus_id,memory.total,compute_cap,compute_mode,driver_version,index")), "\n")
	if len(lines) != len(inv.GPUs) {
		t.Fatalf("nvidia-smi lists %d GPUs, Inventory %d", len(lines), len(inv.GPUs))
	}
	for _, line := range lines {
		compare(t, inv, strings.Split(line, ", "))
	}
	if err := l.SetComputeMode(t.Context(), "GPU-00000000-0000-4000-8000-000000000000", gpu.ComputeModeDefault); err == nil {
		t.Error("a GPU that does not exist has got a compute mode")
	}
}

func compare(t *testing.T, inv gpu.Inventory, f []string) {
	t.Helper()
	g, ok := inv.GPU(gpu.UUID(f[0]))
	pci, err := gpu.ParsePCIBusID(f[2])
	if !ok || err != nil {
		t.Fatalf("nvidia-smi lists %q, the inventory does not: %v", f, err)
	}
	mode := map[string]gpu.ComputeMode{"Default": gpu.ComputeModeDefault, "Exclusive_Process": gpu.ComputeModeExclusiveProcess, "Prohibited": gpu.ComputeModeProhibited}
	if g.Name != f[1] || g.PCI != pci || g.Memory.String() != f[3] || g.Capability.String() != f[4] || g.ComputeMode != mode[f[5]] || inv.Driver != f[6] {
		t.Errorf("nvidia-smi says %q, the inventory %+v", f, g)
	}
	t.Logf("%+v, CUDA %s, %+v", g, inv.CUDA, inv.Host)
}

func smi(t *testing.T, query string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nvidia-smi", "--query-gpu="+query, "--format=csv,noheader").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
