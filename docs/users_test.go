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
	// lacks is what this machine would need to have such a slot; empty if it can.
	lacks string
}

// machine has the GPUs and the MIG device that jobs get.
type machine struct {
	cards  []gpu.GPU
	device gpu.MIGDevice
	// real: they are this machine's, not made up.
	real bool
}

var madeUp = machine{
	cards:  []gpu.GPU{{UUID: "GPU-00000000-0000-4000-8000-000000000000", Memory: 81559}, {UUID: "GPU-00000000-0000-4000-8000-000000000001", Memory: 81559}},
	device: gpu.MIGDevice{UUID: "MIG-00000000-0000-5000-8000-000000000001", Memory: 9856},
}

// slots are the kinds of slots of a node, with the variables that gpuslot sets there. The
// hook decides for all but the observed one.
func slots(t *testing.T, m machine) map[string]slot {
	t.Helper()
	now := time.Now()
	planned := func(u gpu.UUID, memory gpu.MiB, mode config.Mode) plan.GPU {
		return plan.GPU{UUID: u, Mode: mode, Memory: memory, Shares: 2, Pool: memory - 512, LargestRequest: memory - 512,
			Threads: plan.Threads{Policy: config.ThreadsUncapped}}
	}
	caller := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}}}
	const budget = 4096
	// job is a slot of a job on the GPUs or the device. CUDA shows about 1 % less of a card than NVML.
	job := func(limited bool, most gpu.MiB, gpus ...plan.GPU) slot {
		state := admission.State{
			Plan: &plan.Plan{GPUs: gpus}, Pipes: filepath.Join(t.TempDir(), "mps"), Now: now, MaxAge: time.Minute,
			Health: admission.Health{Watched: true, Checked: mps.Checked{PID: 7, Started: 8, At: now}, CgroupLimits: limited},
		}
		ad := &api.Job{}
		for _, g := range gpus {
			ad.AssignedGPUs = append(ad.AssignedGPUs, string(g.UUID))
		}
		if most > 0 {
			vram := int64(most)
			ad.ProvisionedVRAM = &vram
		}
		grant, refusal := admission.Decide(state, caller, ad)
		if refusal != nil {
			t.Fatalf("%s: %s", ad.AssignedGPUs, refusal.Reason)
		}
		s := slot{env: condor.Environment{}.With(grant.Environment, grant.Defaults), total: gpus[0].Memory * 99 / 100, most: most}
		if limited {
			s.total = most
			s.lacks = "no job's cgroup has a VRAM limit of the driver here"
		}
		return s
	}
	one := m.cards[0]
	two := []plan.GPU{planned(one.UUID, one.Memory, config.ModeWhole), planned(m.cards[1].UUID, m.cards[1].Memory, config.ModeWhole)}
	var observed condor.Environment // no hook: HTCondor's own variable
	observed.Set("CUDA_VISIBLE_DEVICES", string(one.UUID))
	kinds := map[string]slot{
		"shared":                          job(false, budget, planned(one.UUID, one.Memory, config.ModeMPS)),
		"shared, limited by the driver":   job(true, budget, planned(one.UUID, one.Memory, config.ModeMPS)),
		"shared in time slices":           job(true, budget, planned(one.UUID, one.Memory, config.ModeTimeSlice)),
		"whole":                           job(false, 0, two[0]),
		"two whole GPUs":                  job(false, 0, two...),
		"MIG device":                      job(false, 0, planned(m.device.UUID, m.device.Memory, config.ModeMIG)),
		"shared MIG device":               job(false, budget, planned(m.device.UUID, m.device.Memory, config.ModeMPS)),
		"observed, or a node without one": {env: observed, total: one.Memory * 99 / 100},
	}
	for kind, needs := range map[string][]gpu.UUID{"two whole GPUs": {m.cards[1].UUID}, "MIG device": {m.device.UUID}, "shared MIG device": {m.device.UUID}} {
		if s := kinds[kind]; m.real && (needs[0] == madeUp.cards[1].UUID || needs[0] == madeUp.device.UUID) {
			s.lacks = "this machine has no second GPU, or no MIG device"
			kinds[kind] = s
		}
	}
	return kinds
}

// TestFrameworkLines runs what users.md shows in each kind of slot. On a shared GPU each
// framework leaves room for its context, and uses most of the rest of the budget. Elsewhere
// the lines do not fail, and leave the framework most of the card or device.
func TestFrameworkLines(t *testing.T) {
	python := pythonOf(t, "python3")
	dir := stand(t, stands)
	blocks := blocksOf(t)
	for kind, s := range slots(t, madeUp) {
		for name, lines := range blocks {
			t.Run(kind+"/"+name, func(t *testing.T) {
				out, err := s.run(t, python, "import sys; sys.path.insert(0, '"+dir+"')\n"+lines)
				if problem, skip := s.judge(out, err); problem+skip != "" {
					t.Errorf("%s\n%s%s", lines, problem, skip)
				}
			})
		}
	}
}

// pythonOf is the program of a Python, which may be a script that finds it.
func pythonOf(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("no python3 to run the lines of users.md")
	}
	return strings.TrimSpace(string(out))
}

// stand writes Python modules into a directory.
func stand(t *testing.T, modules map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, code := range modules {
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// blocksOf are the lines of users.md for each framework.
func blocksOf(t *testing.T) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	for _, b := range pythonBlock.FindAllStringSubmatch(read(t, "users.md"), -1) {
		for name := range stands {
			if strings.Contains(b[1], name) {
				blocks[name] = b[1]
			}
		}
	}
	if len(blocks) != len(stands) {
		t.Fatalf("%d blocks for %d frameworks", len(blocks), len(stands))
	}
	return blocks
}

// run gives Python code a job's environment, and returns what it printed. TOTAL is what CUDA shows; BELOW can be had
// in the slot, and ABOVE cannot, or is 0.
func (s slot) run(t *testing.T, python, lines string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", "-c", lines)
	below := s.most * 7 / 10
	if s.most == 0 {
		below = min(1024, s.total/2)
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("TOTAL=%d", s.total), fmt.Sprintf("BELOW=%d", below), fmt.Sprintf("ABOVE=%d", s.most))
	for _, name := range s.env.Names() {
		value, _ := s.env.Lookup(name)
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// judge reads what the lines printed. MIB is what the framework would take: on a shared GPU most of the budget with room
// for its context, elsewhere most of the card or device, and nothing means the same. TOOK and REFUSED are
// allocations on a GPU.
func (s slot) judge(out string, err error) (problem, skip string) {
	if err != nil {
		return err.Error() + "\n" + out, ""
	}
	if why, ok := strings.CutPrefix(out, "SKIP "); ok {
		return "", why
	}
	if strings.HasPrefix(out, "TOOK") {
		want := "TOOK"
		if s.most > 0 {
			want = "TOOK REFUSED"
		}
		if out != want {
			return fmt.Sprintf("allocations below and above the budget: %s, want %s", out, want), ""
		}
		return "", ""
	}
	least, most := 0.75*float64(s.most), float64(s.most)-400
	if s.most == 0 {
		least, most = 0.9*float64(s.total), float64(s.total)*1.01
	}
	mib := 0.0
	if out != "" {
		value, _ := strings.CutPrefix(out, "MIB ")
		if mib, err = strconv.ParseFloat(value, 64); err != nil {
			return "it printed " + out, ""
		}
	}
	if (mib != 0 || s.most > 0) && (mib < least || mib > most) {
		return fmt.Sprintf("takes %.0f MiB, want %.0f to %.0f", mib, least, most), ""
	}
	return "", ""
}
