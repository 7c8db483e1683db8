package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// stands are Python modules in place of the frameworks: they take the calls
// that users.md makes as the frameworks document them, and print how many MiB
// the framework would take. CUDA shows the card or device with TOTAL MiB.
var stands = map[string]string{
	"torch": `
import os
total = int(os.environ["TOTAL"])
class _Properties: total_memory = total * 2**20
class cuda:
    @staticmethod
    def get_device_properties(device): return _Properties()
    @staticmethod
    def set_per_process_memory_fraction(fraction, device=None):
        assert isinstance(fraction, float) and 0 <= fraction <= 1, fraction
        print("MIB", fraction * total)
`,
	"tensorflow": `
class config:
    class LogicalDeviceConfiguration:
        def __init__(self, memory_limit=None): self.memory_limit = memory_limit
    @staticmethod
    def list_physical_devices(kind=None):
        assert kind == "GPU"
        return ["a GPU"]
    @staticmethod
    def set_logical_device_configuration(device, logical_devices):
        assert device == "a GPU" and len(logical_devices) == 1
        print("MIB", logical_devices[0].memory_limit)
`,
	"jax": `
import os
if "XLA_PYTHON_CLIENT_MEM_FRACTION" in os.environ:
    print("MIB", float(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]) * int(os.environ["TOTAL"]))
`,
	"cupy": `
class _Pool:
    def set_limit(self, size=None, fraction=None):
        assert isinstance(size, int)
        print("MIB", size / 2**20)
def get_default_memory_pool(): return _Pool()
`,
}

var pythonBlock = regexp.MustCompile("(?s)```python\n(.*?)```")

// slot is one kind of slot: the variables that a job has there, the MiB that CUDA shows it,
// and the most that a framework may take. most is 0 where it may take what it wants.
type slot struct {
	env   condor.Environment
	total gpu.MiB
	most  gpu.MiB
}

// slots are the kinds of slots of a node, with the variables that gpuslot sets there. The
// hook decides for the shared, the whole and the MIG device's job.
func slots(t *testing.T) map[string]slot {
	t.Helper()
	now := time.Now()
	card := func(n int, mode config.Mode) plan.GPU {
		return plan.GPU{UUID: gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n)), Mode: mode,
			Memory: 81559, Shares: 10, Pool: 80896, LargestRequest: 40960, Threads: plan.Threads{Policy: config.ThreadsUncapped}}
	}
	shared, whole, device := card(0, config.ModeMPS), card(1, config.ModeWhole), card(2, config.ModeMIG)
	sliced := card(3, config.ModeTimeSlice)
	device.UUID, device.Memory = "MIG-00000000-0000-5000-8000-000000000001", 9856
	state := admission.State{
		Plan: &plan.Plan{GPUs: []plan.GPU{shared, whole, device, sliced}}, Pipes: "/run/gpuslot/mps", Now: now, MaxAge: time.Minute,
		Health: admission.Health{Watched: true, Checked: mps.Checked{PID: 7, Started: 8, At: now}},
	}
	caller := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}}}
	hooked := func(s admission.State, u gpu.UUID) condor.Environment {
		budget := int64(4096)
		grant, refusal := admission.Decide(s, caller, &api.Job{AssignedGPUs: []string{string(u)}, ProvisionedVRAM: &budget})
		if refusal != nil {
			t.Fatalf("%s: %s", u, refusal.Reason)
		}
		return condor.Environment{}.With(grant.Environment, grant.Defaults)
	}
	limited := state
	limited.Health.CgroupLimits = true
	var observed condor.Environment // no hook: HTCondor's own variable
	observed.Set("CUDA_VISIBLE_DEVICES", "GPU-00000000")
	// CUDA shows about 1 % less of a card than NVML.
	return map[string]slot{
		"shared":                          {hooked(state, shared.UUID), 80743, 4096},
		"shared, limited by the driver":   {hooked(limited, shared.UUID), 4096, 4096},
		"shared in time slices":           {hooked(limited, sliced.UUID), 4096, 4096},
		"whole":                           {hooked(state, whole.UUID), 80743, 0},
		"MIG device":                      {hooked(state, device.UUID), 9757, 0},
		"observed, or a node without one": {observed, 80743, 0},
	}
}

// TestFrameworkLines runs what users.md shows in each kind of slot. On a shared GPU each
// framework leaves room for its context, and uses most of the rest of the budget. Elsewhere
// the lines do not fail, and leave the framework most of the card or device.
func TestFrameworkLines(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to run the lines of users.md")
	}
	text, err := os.ReadFile("users.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, code := range stands {
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	blocks := map[string]string{}
	for _, b := range pythonBlock.FindAllStringSubmatch(string(text), -1) {
		for name := range stands {
			if strings.Contains(b[1], name) {
				blocks[name] = b[1]
			}
		}
	}
	if len(blocks) != len(stands) {
		t.Fatalf("%d blocks for %d frameworks", len(blocks), len(stands))
	}
	for kind, s := range slots(t) {
		for name, lines := range blocks {
			t.Run(kind+"/"+name, func(t *testing.T) {
				mib, err := runLines(t, python, dir, lines, s)
				least, most := 0.75*float64(s.most), float64(s.most)-400
				if s.most == 0 {
					least, most = 0.9*float64(s.total), float64(s.total)*1.01
				}
				if err != nil || (mib != 0 || s.most > 0) && (mib < least || mib > most) {
					t.Errorf("%s\ntakes %.0f MiB, want %.0f to %.0f: %v", lines, mib, least, most, err)
				}
			})
		}
	}
}

// runLines gives the lines a job's environment and returns what the stand-in printed: 0 for nothing.
func runLines(t *testing.T, python, dir, lines string, s slot) (float64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-B", "-c", "import sys; sys.path.insert(0, '"+dir+"')\n"+lines)
	cmd.Env = append(os.Environ(), fmt.Sprintf("TOTAL=%d", int64(s.total)))
	for _, name := range s.env.Names() {
		value, _ := s.env.Lookup(name)
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err == nil && len(out) == 0 {
		return 0, nil
	}
	value, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "MIB ")
	if err != nil || !ok {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return strconv.ParseFloat(value, 64)
}
