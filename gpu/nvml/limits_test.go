//go:build cgo

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
	"github.com/gpuslot/gpuslot/test/sim"
)

// TestMemoryLimits: set, read back, clear, on the simulated driver 615. What is
// refused is a value.
func TestMemoryLimits(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.NewVariant(t, "615", "H200") })
	if l == nil {
		return
	}
	mount := proctree.CgroupMount(t)
	simgpu(t, "cgroups", "dmem", mount)
	leaf, err := os.MkdirTemp(mount, "nvml-test")
	if err != nil {
		t.Skipf("needs a writable cgroup v2 tree: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(leaf) })
	inv, _, err := l.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := inv.GPUs[0].UUID
	if !l.HasMemoryLimits() {
		t.Error("the call is not found")
	}
	read := func(want gpu.MemoryLimits) {
		t.Helper()
		got, err := l.MemoryLimits(t.Context(), u, leaf)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	set := func(cgroup string, soft, hard gpu.Bytes) error {
		return l.SetMemoryLimits(t.Context(), u, cgroup, soft, hard)
	}
	if _, err := l.MemoryLimits(t.Context(), u, leaf); !errors.Is(err, gpu.ErrNoMemoryLimits) {
		t.Errorf("before any: %v", err)
	}
	budget := gpu.Bytes(gpu.MiB(4000).Bytes())
	if err := set(leaf, budget, budget); err != nil {
		t.Fatal(err)
	}
	read(gpu.MemoryLimits{Soft: budget, Hard: budget})
	if err := set(leaf, 0, gpu.Unlimited); err != nil {
		t.Fatal(err)
	}
	read(gpu.MemoryLimits{Hard: gpu.Unlimited})
	for name, c := range map[string]struct {
		err  error
		want error
		says string
	}{
		"no such cgroup":  {set(filepath.Join(leaf, "none"), 1, 1), gpu.ErrNoCgroup, "no such cgroup"},
		"no cgroup":       {set("/etc", 1, 1), gpu.ErrNoMemoryLimits, "no memory limits"},
		"the root":        {set(mount, 1, 1), ErrNotSupported, "root cgroup"},
		"soft above hard": {set(leaf, 2, 1), nil, "the soft one is above the hard one"},
		"beyond the GPU":  {set(leaf, 0, gpu.Unlimited-1), nil, "above the GPU's memory"},
	} {
		if c.err == nil || c.want != nil && !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	simgpu(t, "cgroups", "off")
	if err := set(leaf, 1, 1); !errors.Is(err, ErrNotSupported) {
		t.Errorf("switched off: %v", err)
	}
}

// TestMemoryLimitsOfAnOlderDriver: the symbol is not there, and nothing calls it.
func TestMemoryLimitsOfAnOlderDriver(t *testing.T) {
	l := &Library{lib: withoutSymbols{}, worker: newWorker()}
	t.Cleanup(l.worker.stop)
	u := gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	if _, err := l.MemoryLimits(t.Context(), u, "/x"); !errors.Is(err, ErrNotSupported) || l.HasMemoryLimits() {
		t.Errorf("read: %v", err)
	}
	if err := l.SetMemoryLimits(t.Context(), u, "/x", 0, 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("set: %v", err)
	}
}

// withoutSymbols is a library that has none of the looked-up calls.
type withoutSymbols struct {
	nvml.Interface
	nvml.ExtendedInterface
}

func (l withoutSymbols) Extensions() nvml.ExtendedInterface { return l }
func (l withoutSymbols) LookupSymbol(string) error          { return errors.New("not found") }
