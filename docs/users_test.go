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
)

// stands are Python modules in place of the frameworks: they take the calls
// that users.md makes as the frameworks document them, and print how many MiB
// the framework would take. A card has 32768 MiB.
var stands = map[string]string{
	"torch": `
class _Properties: total_memory = 32768 * 2**20
class cuda:
    @staticmethod
    def get_device_properties(device): return _Properties()
    @staticmethod
    def set_per_process_memory_fraction(fraction, device=None):
        assert isinstance(fraction, float) and 0 <= fraction <= 1, fraction
        print("MIB", fraction * 32768)
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
	"jax":  "import os\nif 'XLA_PYTHON_CLIENT_MEM_FRACTION' in os.environ: print('MIB', float(os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION']) * 32768)\n",
	"cupy": "class _Pool:\n    def set_limit(self, size=None, fraction=None):\n        assert isinstance(size, int)\n        print('MIB', size / 2**20)\ndef get_default_memory_pool(): return _Pool()\n",
}

var pythonBlock = regexp.MustCompile("(?s)```python\n(.*?)```")

// TestFrameworkLines runs what users.md shows: with a budget of 4096 MiB each framework
// leaves room for its context, and uses most of the rest. Without a budget, as in a job
// with a whole GPU or a MIG device, the lines set no limit and do not fail.
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
	blocks := pythonBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != len(stands) {
		t.Fatalf("%d blocks for %d frameworks", len(blocks), len(stands))
	}
	for name := range stands {
		t.Run(name, func(t *testing.T) {
			for _, b := range blocks {
				if !strings.Contains(b[1], name) {
					continue
				}
				mib, err := runLines(t, python, dir, b[1], "GPUSLOT_VRAM_MIB=4096", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.12")
				if err != nil || mib < 3072 || mib > 4096-400 {
					t.Errorf("%s\ntakes %.0f MiB of 4096, %v", b[1], mib, err)
				}
				if mib, err := runLines(t, python, dir, b[1]); err != nil || mib != 0 {
					t.Errorf("%s\nwithout a budget: %.0f MiB, %v", b[1], mib, err)
				}
				return
			}
			t.Errorf("users.md has no line for %s", name)
		})
	}
}

// runLines gives the lines a job's environment and returns what the stand-in printed: 0 for nothing.
func runLines(t *testing.T, python, dir, lines string, env ...string) (float64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-B", "-c", "import sys; sys.path.insert(0, '"+dir+"')\n"+lines)
	cmd.Env = append(os.Environ(), env...)
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
