package sim

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
)

// inventoryOut tells this test binary to be the reader of the round trip: a
// process loads one NVML, and finds it by its environment.
const inventoryOut = "SIM_TEST_INVENTORY"

// A recorded inventory becomes a node on which gpu/nvml reads that inventory.
func TestInventoryRoundTrip(t *testing.T) {
	if out := os.Getenv(inventoryOut); out != "" {
		writeInventory(t, out)
		return
	}
	example, err := os.ReadFile("../../docs/examples/v100s-8.json")
	if err != nil {
		t.Fatal(err)
	}
	reserved := gpu.MiB(479)
	mixed, err := gpu.Inventory{
		Schema: gpu.InventorySchema, Host: gpu.Host{Name: "n", CPUs: 1, Memory: 1}, Driver: "535.183.01", CUDA: "12.2",
		GPUs: []gpu.GPU{
			{UUID: "GPU-11111111-2222-4333-8444-555555555555", Index: 1, Name: "NVIDIA A100-SXM4-40GB", PCI: "0000:0a:00.0",
				Memory: 40960, Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, MIGCapable: true, MIGEnabled: true,
				ComputeMode: gpu.ComputeModeDefault},
			{UUID: "GPU-66666666-2222-4333-8444-555555555555", Index: 0, Name: "Tesla V100-SXM2-32GB", PCI: "0000:0b:00.0",
				Memory: 32768, Capability: gpu.ComputeCapability{Major: 7}, Multiprocessors: 80, ComputeMode: gpu.ComputeModeProhibited},
			{UUID: "GPU-77777777-2222-4333-8444-555555555555", Index: 2, Name: "NVIDIA H100 80GB HBM3", PCI: "0001:0c:00.0",
				Memory: 81559, Reserved: &reserved, Capability: gpu.ComputeCapability{Major: 9}, Multiprocessors: 132, MIGCapable: true,
				ComputeMode: gpu.ComputeModeExclusiveProcess},
		},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, recorded := range map[string][]byte{"example": example, "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			want, err := gpu.DecodeInventory(bytes.NewReader(recorded))
			if err != nil {
				t.Fatal(err)
			}
			n := New(t, "550.163.01")
			n.make(t, string(recorded))
			got := n.readInventory(t)
			want.Host, want.Sources = got.Host, nil // of the machine that runs the test; for people
			for i := range want.GPUs {
				if want.GPUs[i].MIGEnabled {
					want.GPUs[i].MIGDevices = []gpu.MIGDevice{} // the recorded ones are not made
				}
				if want.GPUs[i].Reserved == nil {
					want.GPUs[i].Reserved = got.GPUs[i].Reserved // the model's
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the node is not the recorded one (-recorded +read):\n%s", d)
			}
		})
	}
}

// writeInventory is the other process.
func writeInventory(t *testing.T, path string) {
	lib, err := nvml.Open()
	if err != nil {
		t.Fatal(err)
	}
	inv, unreadable, err := lib.Inventory(t.Context())
	if err != nil || len(unreadable) > 0 {
		t.Fatal(err, unreadable)
	}
	b, err := inv.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (n *Node) readInventory(t *testing.T) gpu.Inventory {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "inventory.json")
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestInventoryRoundTrip$")
	cmd.Env = append(n.Env(), inventoryOut+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := gpu.DecodeInventory(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// What is wrong with a node file is said with its place.
func TestNodeFileErrors(t *testing.T) {
	tests := []struct{ file, want string }{
		{``, "line 1: a value belongs here: a string, a whole number, true, false, null, a list or an object"},
		{`{}`, `line 1: there is no "gpus": a list`},
		{`[]`, "line 1: a node file is one object"},
		{`{"gpus": []} x`, "line 1: something follows the end of the file's value"},
		{`{"gpus": [],}`, "line 1: a string in double quotes belongs here"},
		{`{"gpus" []}`, "line 1: a colon belongs after the key"},
		{"{\"gpus\": [\n]", "line 2: a comma or } belongs here"},
		{`{"gpus": [1 2]}`, "line 1: a comma or ] belongs here"},
		{`{"gpus": [], "gpus": []}`, "line 1: a key stands twice in one object"},
		{`{"gpus": "x`, "line 1: a string without an end"},
		{"{\"gpus\": \"x\ty\"}", "line 1: a control character in a string"},
		{`{"gpus": "\x"}`, `line 1: a backslash stands before "\/bfnrt or u00XX of a printable character`},
		{`{"gpus": 01}`, "line 1: a value belongs here: a string, a whole number, true, false, null, a list or an object"},
		{`{"gpus": 1.5}`, "line 1: a value belongs here: a string, a whole number, true, false, null, a list or an object"},
		{strings.Repeat(`[`, 40), "line 1: nested too deep"},
		{`{"gpus": {}}`, "line 1: gpus is a list"},
		{`{"gpus": [], "gpu": []}`, "line 1: gpu is no key of a node file"},
		{`{"gpus": [], "driver": "x"}`, "line 1: driver is a version such as 550.163.01"},
		{`{"gpus": [], "schema": "other/1"}`, "line 1: schema is other/1; simgpu reads gpuslot-inventory/1"},
		{"{\"gpus\": [{\"model\": \"T4\"},\n{}]}", `line 2: gpus[1]: no model for a GPU without a name; add "model", simgpu models lists them`},
		{`{"gpus": [7]}`, "line 1: gpus[0]: a GPU is an object"},
		{`{"gpus": [{"model": "T5"}]}`, "line 1: gpus[0]: no model T5; simgpu models lists them"},
		{`{"gpus": [{"name": "GeForce"}]}`, `line 1: gpus[0]: no model for GeForce; add "model", simgpu models lists them`},
		{`{"gpus": [{"model": "T4", "memory_mib": 32768}]}`,
			"line 1: gpus[0]: the model T4 has 15360 MiB, 40 multiprocessors and compute capability 7.5; the file says otherwise"},
		{`{"gpus": [{"model": "T4", "memory_mib": "x"}]}`, "line 1: gpus[0]: memory_mib is a whole number up to 4194304"},
		{`{"gpus": [{"model": "T4", "mig_enabled": 1}]}`, "line 1: gpus[0]: mig_enabled is true or false"},
		{`{"gpus": [{"model": "T4", "mig_enabled": true}]}`, "line 1: gpus[0]: a T4 has no MIG"},
		{`{"gpus": [{"model": "T4", "compute_mode": "exclusive"}]}`,
			"line 1: gpus[0]: compute_mode is default, exclusive-process or prohibited"},
		{`{"gpus": [{"model": "T4", "uuid": "GPU-1"}]}`,
			"line 1: gpus[0]: uuid is GPU- and 32 lower-case hexadecimal digits in 5 groups"},
		{`{"gpus": [{"model": "T4", "pci_bus_id": "3b"}]}`, "line 1: gpus[0]: pci_bus_id is an address such as 0000:3b:00.0"},
		{`{"gpus": [` + strings.Repeat(`{"model": "T4", "uuid": "GPU-00000000-0000-0000-0000-000000000000"},`, 1) +
			`{"model": "T4", "uuid": "GPU-00000000-0000-0000-0000-000000000000"}]}`,
			"line 1: gpus[1]: GPU-00000000-0000-0000-0000-000000000000 stands twice"},
		{`{"gpus": [` + strings.Repeat(`{"model": "T4"},`, 16) + `{"model": "T4"}]}`, "line 1: gpus[16]: the simulated node has room for 16 GPUs"},
	}
	legs(t, func(t *testing.T, n *Node) {
		file := filepath.Join(t.TempDir(), "n.json")
		for _, tt := range tests {
			if err := os.WriteFile(file, []byte(tt.file), 0o644); err != nil {
				t.Fatal(err)
			}
			out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "make", file)
			if want := "simgpu: " + file + ": " + tt.want + "\n"; code != 1 || out != want {
				t.Errorf("%s: exit code %d, %q, want %q", tt.file, code, out, want)
			}
		}
		if _, err := os.Stat(n.State); err == nil {
			t.Error("a file with a mistake made a node")
		}
	})
}

// Only what is said to be true of the state is true of it after a mistake.
func TestSimgpuErrors(t *testing.T) {
	tests := []struct {
		args string
		code int
		want string
	}{
		{"show", 1, "No such file or directory; simgpu make makes the node"},
		{"make /nonexistent", 1, "/nonexistent: No such file or directory"},
		{"frobnicate", 2, "no verb frobnicate; simgpu help lists them"},
		{"xid 0", 2, "usage: simgpu xid GPU NUMBER [GI CI]"},
		{"xid 2 31", 2, "no GPU 2; the node has 2"},
		{"xid 0 x", 2, "XID is a number from 0 to 999, not x"},
		{"lose GPU-aaaa", 2, "GPU-aaaa is the beginning of two UUIDs"},
		{"lose GPU-cccc", 2, "no GPU GPU-cccc; name it by its index or the beginning of its UUID"},
		{"mode 0 exclusive", 2, "a compute mode is default, exclusive-process or prohibited, not exclusive"},
		{"memory 0 gone", 2, "memory is available or unavailable, not gone"},
		{"ecc 0 triple 1", 2, "an ECC error is corrected, uncorrected, sram-corrected, sram-parity or sram-secded, not triple"},
		{"set 0 colour red", 2, "set power, temperature, sm-clock, memory-clock, throttle, unlisted, reset-blocked or sram-threshold, not colour"},
		{"set 0 power hot", 2, "power in W is a number from 0 to 2000, not hot"},
		{"set 0 reset-blocked maybe", 2, "reset-blocked is yes or no, not maybe"},
		{"lists none", 2, "MPS clients stand in both, mps or compute, not none"},
		{"stray 1", 2, "stray is yes or no, not 1"},
		{"remap 0 failure 1", 2, "remap takes correctable, uncorrectable, pending, not failure"}, // retired pages do not fail
		{"hang any", 2, "a GPU hangs, or a call: simgpu hang any nvmlInit_v2"},
		{"fail 0 open 3", 2, "open is no name of a call; write one of NVML or CUDA, or its beginning and *"},
		{"process rm 4194304", 1, "PID 4194304 is on no GPU; simgpu show lists them"},
		{"process add 4194304 0 1", 1, "PID 4194304 does not live, or the table of processes is full"},
		{"clock 5", 2, "the clock jumps by +SECONDS or -SECONDS, or is real; not 5"},
		{"driver old", 2, "a driver is missing or loaded, not old"},
		{"mps fault 0", 1, "no MPS server on GPU 0; simgpu show lists them"},
		{"mig 0 on", 1, "MIG mode of GPU 0: Not Supported"},
		{"show --xml", 2, "show takes --json, not --xml"},
	}
	legs(t, func(t *testing.T, n *Node) {
		for i, tt := range tests {
			if i == 1 {
				n.make(t, `{"gpus": [{"model": "T4", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"},
					{"model": "V100S", "uuid": "GPU-aaaa1111-0000-4000-8000-000000000000"}]}`)
			}
			var before string
			if i > 0 {
				before = n.simgpu(t, "show")
			}
			out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), strings.Fields(tt.args)...)
			if code != tt.code || !strings.HasPrefix(out, "simgpu: ") || !strings.HasSuffix(out, tt.want+"\n") {
				t.Errorf("simgpu %s: exit code %d: %q, want %d: %q", tt.args, code, out, tt.code, tt.want)
			}
			if i > 0 && n.simgpu(t, "show") != before {
				t.Errorf("simgpu %s changed the state", tt.args)
			}
		}
	})
}

// A whole small life, as an operator of a test sees it.
func TestShow(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"driver": "535.183.01", "gpus": [
			{"model": "A100-40", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"},
			{"model": "T4", "uuid": "GPU-bbbb0000-0000-4000-8000-000000000000", "compute_mode": "exclusive-process"}]}`)
		n.simgpu(t, "mig", "0", "on")
		n.simgpu(t, "mig", "0", "create", "3g.20gb@4")
		n.simgpu(t, "hang", "any", "nvmlEventSetWait_v2")
		n.simgpu(t, "fail", "1", "cuMemAlloc*", "2", "3")
		n.simgpu(t, "xid", "GPU-bbbb", "13")
		n.simgpu(t, "clock", "-60")
		pid := strconv.Itoa(os.Getpid())
		n.simgpu(t, "process", "add", pid, "1", "5000", "30")
		comm, err := os.ReadFile("/proc/self/comm")
		if err != nil {
			t.Fatal(err)
		}
		uuid := n.shown(t).GPUs[0].Devices[0].UUID
		want := `driver 535.183.01, CUDA 12.2, clock -60 s

GPU UUID NAME MEMORY LOAD COMPUTE MODE MIG TROUBLE
0 GPU-aaaa0000-0000-4000-8000-000000000000 NVIDIA A100-SXM4-40GB 0 of 40960 MiB 0 % default on -
1 GPU-bbbb0000-0000-4000-8000-000000000000 Tesla T4 5000 of 15360 MiB 30 % exclusive-process - XID 13

MIG devices
GPU GI CI PROFILE UUID MEMORY
0 2 0 3g.20gb@4 ` + uuid + ` 0 MiB

Processes
PID NAME KIND GPU GI CI MEMORY LIMIT LOAD
` + pid + " " + strings.TrimSpace(string(comm)) + ` compute 1 - - 5000 MiB - 30 %

Planned failures
CALL GPU RESULT LEFT
nvmlEventSetWait_v2 any hangs for ever
cuMemAlloc* 1 2 3
`
		got := n.simgpu(t, "show")
		for i, l := range strings.Split(got, "\n") {
			if strings.TrimRight(l, " ") != l {
				t.Errorf("line %d ends in spaces: %q", i+1, l)
			}
		}
		if d := cmp.Diff(want, squeeze(got)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		n.simgpu(t, "process", "rm", pid)
		n.simgpu(t, "release", "any")
		n.simgpu(t, "clock", "real")
		n.simgpu(t, "mig", "0", "destroy")
		n.simgpu(t, "mig", "0", "off")
		if got := n.simgpu(t, "show"); strings.Contains(got, "Processes") || strings.Contains(got, "failures") ||
			strings.Contains(got, "MIG devices") || strings.Contains(got, "clock") {
			t.Errorf("something is left:\n%s", got)
		}
	})
}

// squeeze makes one space of several: the widths are the longest cells'.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

// The columns of a table stand below each other.
func TestShowIsAligned(t *testing.T) {
	n := New(t, "550.163.01", "T4", "RTXPRO6000")
	lines := strings.Split(n.simgpu(t, "show"), "\n")
	if len(lines) < 5 {
		t.Fatalf("%q", lines)
	}
	for _, column := range []string{"UUID", "NAME", "MEMORY", "LOAD", "COMPUTE MODE", "MIG", "TROUBLE"} {
		at := strings.Index(lines[2], column)
		for _, l := range lines[3:5] {
			if at < 2 || len(l) <= at || l[at-1] != ' ' || l[at] == ' ' {
				t.Errorf("column %s is not at %d of %q", column, at, l)
			}
		}
	}
}

// A process in the state is a living one: it is out when it ends.
func TestDeadProcessesLeave(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sleep", "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.simgpu(t, "process", "add", strconv.Itoa(cmd.Process.Pid), "0", "100")
	if got := n.shown(t).GPUs[0].Used; got != 100 {
		t.Errorf("%d MiB used, want 100", got)
	}
	cancel()
	n.eventually(t, "free", func(s shown) bool { return s.GPUs[0].Used == 0 && len(s.Processes) == 0 })
	_ = cmd.Wait()
}
