package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// trial allocates below the budget, and above it. It follows the lines of users.md.
const trial = `
import os
def trial(take):
    took = take(int(os.environ["BELOW"]))
    said = "TOOK"
    del took
    if int(os.environ["ABOVE"]):
        try:
            take(int(os.environ["ABOVE"]))
            said += " TOOK"
        except Exception as e:
            text = type(e).__name__ + " " + str(e)
            if not any(w in text.lower() for w in ("out of memory", "outofmemory", "resource_exhausted", "resourceexhausted")):
                raise
            said += " REFUSED"
    print(said)
`

// real is what runs before and after a framework's lines in users.md. With a GPU it allocates. Without one it
// takes the driver's place, so that the framework itself reads the settings, and prints what it would take.
type real struct{ before, after string }

var reals = map[string]real{
	"torch": {`
import os, torch
if not torch.cuda.is_available():
    class _Properties: total_memory = int(os.environ["TOTAL"]) * 2**20
    torch.cuda.get_device_properties = lambda device: _Properties()
    torch.cuda._lazy_init = torch.cuda.memory._lazy_init = lambda: None
    torch.cuda.current_device = lambda: 0
    torch._C._cuda_setMemoryFraction = lambda fraction, device: print("MIB", fraction * int(os.environ["TOTAL"]))
`, `
if torch.cuda.is_available():
    trial(lambda mib: torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda"))
`},
	"tensorflow": {`
import tensorflow as tf
_without = not tf.config.list_physical_devices("GPU")
if _without:
    tf.config.list_physical_devices = lambda kind=None: ["a GPU"]
    tf.config.set_logical_device_configuration = lambda device, logical: print("MIB", logical[0].memory_limit)
`, `
def _take(mib):
    with tf.device("/GPU:0"):
        return tf.zeros([mib * 2**20], tf.uint8)
if not _without:
    trial(_take)
`},
	"jax": {``, `
if jax.default_backend() == "gpu":
    trial(lambda mib: jax.numpy.zeros(mib * 2**20, "uint8").block_until_ready())
else:
    from jaxlib import xla_client
    if hasattr(xla_client, "generate_pjrt_gpu_plugin_options"):
        fraction = xla_client.generate_pjrt_gpu_plugin_options().get("memory_fraction")
        if fraction is not None:
            print("MIB", float(fraction) * int(os.environ["TOTAL"]))
    else:
        print("SKIP this jaxlib reads its settings on a GPU only")
`},
	"cupy": {`
import sys, cupy
try:
    cupy.cuda.runtime.getDeviceCount()
except Exception:
    print("SKIP CuPy takes a limit on a GPU only")
    sys.exit()
`, `
trial(lambda mib: cupy.zeros(mib * 2**20, dtype=cupy.uint8))
`},
}

// TestRealFrameworks runs the lines of users.md with the frameworks that python3 has, in each kind of slot. GPUSLOT_PYTHON
// is another Python.
func TestRealFrameworks(t *testing.T) {
	python := os.Getenv("GPUSLOT_PYTHON")
	if python == "" {
		python = pythonOf(t, "python3")
	}
	blocks := blocksOf(t)
	for name, r := range reals {
		t.Run(name, func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), python, "-c", "import "+name).CombinedOutput(); err != nil {
				if text := string(out); !strings.Contains(text, "No module named '"+name+"'") {
					t.Fatalf("import %s: %v\n%s", name, err, text)
				}
				t.Skipf("python3 has no %s", name)
			}
			for kind, s := range slots(t, thisMachine(t)) {
				t.Run(kind, func(t *testing.T) {
					if s.lacks != "" && hasGPU() {
						t.Skip(s.lacks)
					}
					problem, skip := s.judge(s.run(t, python, trial+r.before+blocks[name]+r.after))
					if skip != "" {
						t.Skip(skip)
					}
					if problem != "" {
						t.Error(problem)
					}
				})
			}
		})
	}
}

// TestTrial tries the test itself, with a stand-in for PyTorch that has a GPU: without the lines of users.md a
// shared slot's budget does not hold, and an error that is no lack of memory fails.
func TestTrial(t *testing.T) {
	python := pythonOf(t, "python3")
	torch := stands["torch"] + `
    fraction = 1.0
    @staticmethod
    def set_per_process_memory_fraction(fraction, device=None): cuda.fraction = fraction
    @staticmethod
    def is_available(): return True
class OutOfMemoryError(RuntimeError): pass
uint8 = 1
def empty(n, dtype, device):
    if "BROKEN" in os.environ: raise RuntimeError("no kernel image")
    if n > cuda.fraction * total * 2**20: raise OutOfMemoryError("CUDA out of memory")
`
	path := "import sys; sys.path.insert(0, '" + stand(t, map[string]string{"torch": torch}) + "')\n"
	lines, all := blocksOf(t)["torch"], slots(t, madeUp)
	for _, c := range []struct {
		name, lines string
		want        string
	}{
		{"with its lines", lines, ""},
		{"without", "", "TOOK TOOK, want TOOK REFUSED"},
		{"broken", "os.environ['BROKEN'] = '1'\n", "no kernel image"},
	} {
		shared := all["shared"]
		problem, skip := shared.judge(shared.run(t, python, path+trial+reals["torch"].before+c.lines+reals["torch"].after))
		if skip != "" || (problem == "") != (c.want == "") || !strings.Contains(problem, c.want) {
			t.Errorf("%s: %q %q, want %q", c.name, problem, skip, c.want)
		}
	}
	for kind, s := range all {
		if problem, skip := s.judge(s.run(t, python, path+trial+reals["torch"].before+lines+reals["torch"].after)); problem+skip != "" {
			t.Errorf("%s: %q %q", kind, problem, skip)
		}
	}
}

// hasGPU: NVIDIA's driver has a GPU here.
func hasGPU() bool {
	return exec.Command("nvidia-smi", "-L").Run() == nil
}

// thisMachine has the GPUs of this machine where it has any. What it has not is made up.
func thisMachine(t *testing.T) machine {
	t.Helper()
	m := machine{cards: slices.Clone(madeUp.cards), device: madeUp.device}
	if !hasGPU() {
		return m
	}
	text, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/gpuslot", "inventory", "--json").Output()
	if err != nil {
		t.Fatalf("gpuslot inventory: %v", err)
	}
	file := filepath.Join(t.TempDir(), "inventory.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	inv, err := gpu.ReadInventory(file)
	if err != nil {
		t.Fatal(err)
	}
	m.real = true
	for i, g := range inv.GPUs[:min(2, len(inv.GPUs))] {
		m.cards[i] = g
	}
	for _, g := range inv.GPUs {
		if len(g.MIGDevices) > 0 {
			m.device = g.MIGDevices[0]
		}
	}
	return m
}
