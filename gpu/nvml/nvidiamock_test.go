//go:build cgo

package nvml_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
)

// mockFolder names a folder with NVIDIA's mock of the library, libnvidia-ml.so.1, and its
// configurations (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml). It is not ours, and not kept here.
const mockFolder = "GPUSLOT_NVIDIA_MOCK"

// mockWant tells this test binary to be the process that reads the mock, and what it must find.
const mockWant = "GPUSLOT_TEST_MOCK"

// mocked is what a configuration states.
type mocked struct {
	Name            string
	Driver          string
	Total, Reserved gpu.MiB
	Major, Minor    int
	NUMA            bool
	// Busy: GPU 1 has a process and GPU 2 reports an Xid 48. Divided: all are in MIG mode.
	Busy, Divided bool
}

// TestMockLibrary: NVIDIA's mock library without a configuration and with each of its own is
// read as it is stated: inventory, memory, processes, MIG mode and the Xid of one GPU.
func TestMockLibrary(t *testing.T) {
	folder := os.Getenv(mockFolder)
	if folder == "" {
		t.Skip(mockFolder + " names no folder with NVIDIA's mock library (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml)")
	}
	configs, err := filepath.Glob(filepath.Join(folder, "configs", "*.yaml"))
	if err != nil || len(configs) != 7 {
		t.Fatal(configs, err)
	}
	without := mocked{Name: "Mock NVIDIA A100-SXM4-40GB", Driver: "550.163.01", Total: 40960, Major: 8}
	t.Run("none", func(t *testing.T) { readMock(t, folder, "", without) })
	for _, config := range configs {
		t.Run(filepath.Base(config), func(t *testing.T) {
			b, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			value := func(key string) string {
				m := regexp.MustCompile(`(?m)^ +` + key + `: "?([^"#\n]+?)"? *(#.*)?$`).FindStringSubmatch(text)
				if m == nil {
					t.Fatalf("no %s", key)
				}
				return m[1]
			}
			number := func(key string) int64 {
				n, err := strconv.ParseInt(value(key), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			want := mocked{
				Name: value("name"), Driver: value("driver_version"), Total: gpu.MiBFromBytes(uint64(number("total_bytes"))),
				Reserved: gpu.MiBFromBytes(uint64(number("reserved_bytes")) + gpu.BytesPerMiB - 1),
				Major:    int(number("major")), Minor: int(number("minor")), NUMA: strings.Contains(text, "c2c_enabled: true"), Busy: true,
			}
			busy := strings.NewReplacer(
				"  - index: 1\n", "  - index: 1\n    processes: [{pid: 4242, type: \"C\", used_memory_mib: 516}]\n",
				"  - index: 2\n", "  - index: 2\n    failure: {mode: ecc_uncorrectable, xid: {code: 48}}\n")
			readMock(t, folder, busy.Replace(text), want)
			if in := strings.Replace(text, `mode_current: "disabled"`, `mode_current: "enabled"`, 1); in != text {
				want.Busy, want.Divided = false, true
				readMock(t, folder, in, want)
			}
		})
	}
}

// readMock reads the mock in a process of its own.
func readMock(t *testing.T, folder, config string, want mocked) {
	t.Helper()
	file := ""
	if config != "" {
		file = filepath.Join(t.TempDir(), "mock.yaml")
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestMockReader$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), mockWant+"="+string(text), "LD_LIBRARY_PATH="+folder, "MOCK_NVML_CONFIG="+file)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMockReader is the process of TestMockLibrary.
func TestMockReader(t *testing.T) {
	var want mocked
	if err := json.Unmarshal([]byte(os.Getenv(mockWant)), &want); err != nil {
		t.Skip("run by TestMockLibrary")
	}
	l, err := nvml.Open()
	if err != nil {
		t.Fatal(err)
	}
	inv, unreadable, err := l.Inventory(t.Context())
	if err != nil || len(unreadable) > 0 || len(inv.GPUs) < 4 || inv.Driver != want.Driver {
		t.Fatalf("%+v, %v, %v", inv, unreadable, err)
	}
	var unusual []gpu.Trait
	if want.NUMA {
		unusual = []gpu.Trait{gpu.NUMAMemory}
	}
	for _, g := range inv.GPUs {
		if g.Name != want.Name || g.Memory != want.Total || g.Reserved == nil || *g.Reserved != want.Reserved ||
			g.Capability != (gpu.ComputeCapability{Major: want.Major, Minor: want.Minor}) || !slices.Equal(g.Unusual, unusual) ||
			g.MIGEnabled != want.Divided || len(g.MIGDevices) > 0 {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	usage := l.Usage()
	readings, err := usage.Read(t.Context())
	if err != nil || len(readings) != len(inv.GPUs) {
		t.Fatal(readings, err)
	}
	for _, r := range readings {
		m := r.Memory.Value
		if r.Err != nil || !r.Memory.Known || m.Total.MiB() != want.Total || m.Used+m.Free+m.Reserved.Value != m.Total ||
			r.MIGEnabled != want.Divided || r.Processes.Known == want.Divided {
			t.Errorf("%+v", r)
		}
		listed := gpu.Bytes(0)
		for _, p := range r.Processes.Value {
			listed += p.Memory.Value
		}
		if busy := want.Busy && r.Index == 1; busy != (listed == 516<<20) || !busy && listed != 0 {
			t.Errorf("GPU %d has the processes %+v", r.Index, r.Processes.Value)
		}
	}
	if !want.Busy {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []gpu.Event
	if err := l.Watch(ctx, func(e gpu.Event) { got = append(got, e); cancel() }, func(nvml.Listening) {}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].GPU != readings[2].GPU || got[0].XID != 48 || got[0].GPUInstance != gpu.NoInstance {
		t.Errorf("%+v, want an Xid 48 of %s", got, readings[2].GPU)
	}
}
