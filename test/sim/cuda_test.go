package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/test/driver"
)

// legs are the two builds: every test of simjob and simgpu runs on both.
func legs(t *testing.T, test func(t *testing.T, n *Node)) {
	t.Run("plain", func(t *testing.T) { test(t, nodeWith(t, nil)) })
	t.Run("sanitized", func(t *testing.T) { test(t, nodeWith(t, sanitizers)) })
}

// nodeWith is a node that nothing was made on yet, of a build with these flags.
func nodeWith(t *testing.T, flags []string) *Node {
	t.Helper()
	Dir(t) // skips without gcc
	dir, err := build(t.Context(), flags)
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "sim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	return &Node{Dir: dir, State: filepath.Join(tmp, "state"), lib: filepath.Join(dir, "lib")}
}

// make makes the node from the text of a node file.
func (n *Node) make(t *testing.T, file string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	n.simgpu(t, "make", path)
}

// simgpu runs simgpu, which must do what it is told.
func (n *Node) simgpu(t *testing.T, args ...string) string {
	t.Helper()
	out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), args...)
	if code != 0 {
		t.Fatalf("simgpu %v: exit code %d: %s", args, code, out)
	}
	return out
}

// shown is what simgpu show --json says.
type shown struct {
	Driver string `json:"driver"`
	GPUs   []struct {
		UUID    string `json:"uuid"`
		Name    string `json:"name"`
		Used    int    `json:"used_mib"`
		Load    int    `json:"load"`
		Mode    string `json:"compute_mode"`
		Lost    bool   `json:"lost"`
		XID     int    `json:"last_xid"`
		Devices []struct {
			UUID    string `json:"uuid"`
			Profile string `json:"profile"`
			Start   int    `json:"start"`
		} `json:"mig_devices"`
	} `json:"gpus"`
	Processes []struct {
		PID        int    `json:"pid"`
		Kind       string `json:"kind"`
		GPU        int    `json:"gpu"`
		Memory     int    `json:"memory_mib"`
		Peak       int    `json:"peak_mib"`
		Load       int    `json:"load"`
		Percentage int    `json:"percentage"`
	} `json:"processes"`
	Servers []struct {
		State string `json:"state"`
	} `json:"mps_servers"`
}

func (n *Node) shown(t *testing.T) shown {
	t.Helper()
	var s shown
	if err := json.Unmarshal([]byte(n.simgpu(t, "show", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// job runs simjob with words split at spaces, and variables.
func (n *Node) job(t *testing.T, words string, vars ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(n.Dir, "bin/simjob"), strings.Fields(words)...)
	cmd.Env = append(append(clean(), n.Vars()...), vars...)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// clean is this process's environment without what CUDA reads.
func clean() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CUDA_") && !strings.HasPrefix(v, "GPUSLOT_SIM_") && !strings.HasPrefix(v, "LD_") {
			env = append(env, v)
		}
	}
	return append(env, "CUDA_MPS_PIPE_DIRECTORY=/nonexistent")
}

// wantJob runs a job and compares its lines without "init" and its exit code.
func wantJob(t *testing.T, n *Node, words, want string, wantCode int, vars ...string) {
	t.Helper()
	out, code := n.job(t, words, vars...)
	out = strings.TrimPrefix(out, "init: ok\n")
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(out)); d != "" || code != wantCode {
		told := slices.DeleteFunc(slices.Clone(vars), func(v string) bool { return !strings.HasPrefix(v, "CUDA_") })
		t.Errorf("simjob %s with %v: exit code %d, want %d (-want +got):\n%s", words, told, code, wantCode, d)
	}
}

// running is a job that lives beside the test.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed when output ends; a token for each line before
}

// start starts a job; it is killed when the test ends.
func (n *Node) start(t *testing.T, words string, vars ...string) *running {
	t.Helper()
	return n.begin(t, exec.Command(filepath.Join(n.Dir, "bin/simjob"), strings.Fields(words)...), vars...)
}

// begin starts a job's command.
func (n *Node) begin(t *testing.T, cmd *exec.Cmd, vars ...string) *running {
	t.Helper()
	cmd.Env = append(append(clean(), n.Vars()...), vars...)
	r := &running{t: t, cmd: cmd, more: make(chan struct{}, 1000)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		defer close(r.more)
		for s := bufio.NewScanner(out); s.Scan(); r.more <- struct{}{} {
			r.mu.Lock()
			r.lines = append(r.lines, s.Text())
			r.mu.Unlock()
		}
	}()
	return r
}

// patience bounds every wait for something that must come.
const patience = 20 * time.Second

// line waits for a line that begins so, and returns it.
func (r *running) line(begin string) string {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		for _, l := range r.said() {
			if strings.HasPrefix(l, begin) {
				return l
			}
		}
		select {
		case _, open := <-r.more:
			if !open {
				r.t.Fatalf("the job ended without a line %q: %q", begin, r.said())
			}
		case <-deadline:
			r.t.Fatalf("no line %q: %q", begin, r.said())
		}
	}
}

// said are the lines so far.
func (r *running) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// end lets "until eof" go on and waits: the exit code.
func (r *running) end() int {
	_ = r.stdin.Close()
	for range r.more { // Wait closes the pipe: read it first
	}
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

// eventually waits for the state to become so.
func (n *Node) eventually(t *testing.T, what string, so func(shown) bool) {
	t.Helper()
	for start := time.Now(); !so(n.shown(t)); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("never %s:\n%s", what, n.simgpu(t, "show"))
		}
	}
}

// threeGPUs: two beginnings are alike, so that an abbreviated id may be ambiguous.
const threeGPUs = `{"gpus": [
	{"model": "T4", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000", "pci_bus_id": "0000:03:00.0"},
	{"model": "T4", "uuid": "GPU-aaaa1111-0000-4000-8000-000000000001", "pci_bus_id": "0000:02:00.0"},
	{"model": "A100-40", "uuid": "GPU-bbbb2222-0000-4000-8000-000000000002", "pci_bus_id": "0000:04:00.0"}]}`

// devices are the beginnings of the UUIDs that CUDA shows, in its order.
func (n *Node) devices(t *testing.T, vars ...string) string {
	t.Helper()
	out, _ := n.job(t, "devices", vars...)
	if strings.HasPrefix(out, "init: error 100 CUDA_ERROR_NO_DEVICE:") {
		return ""
	}
	var ids []string
	for _, l := range strings.Split(out, "\n") {
		if f := strings.Fields(l); strings.HasPrefix(l, "  ") && strings.HasSuffix(l, ": ok") {
			ids = append(ids, f[1][:8])
		}
	}
	if !strings.Contains(out, fmt.Sprintf("devices %d: ok", len(ids))) {
		t.Fatalf("simjob devices says:\n%s", out)
	}
	return strings.Join(ids, " ")
}

// CUDA_VISIBLE_DEVICES as CUDA C++ Programming Guide and PyTorch's copy of the
// driver's parser (torch/cuda/__init__.py) have it.
func TestVisibleDevices(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, threeGPUs)
		// Fastest first; equal ones by bus address.
		const all = "bbbb2222 aaaa1111 aaaa0000"
		tests := []struct{ name, list, want string }{
			{"numbers follow CUDA's order", "2,0", "aaaa0000 bbbb2222"},
			{"number by strtol", "1gpu,0x", "aaaa1111 bbbb2222"},
			{"spaces", " 1, 2", "aaaa1111 aaaa0000"},
			{"empty", "", ""},
			{"minus one hides all", "-1", ""},
			{"minus one ends the list", "0,-1,1", "bbbb2222"},
			{"number out of range ends the list", "1,3,0", "aaaa1111"},
			{"number twice", "0,1,0", ""},
			{"same number spelled twice", "1,01", ""},
			{"word", "none", ""},
			{"uuid", "GPU-aaaa0000-0000-4000-8000-000000000000", "aaaa0000"},
			{"beginnings", "GPU-bbbb,GPU-aaaa1", "bbbb2222 aaaa1111"},
			{"ambiguous beginning ends the list", "GPU-bbbb,GPU-aaaa,GPU-aaaa1", "bbbb2222"},
			{"unknown uuid first", "GPU-cccc,GPU-bbbb", ""},
			{"unknown uuid ends the list", "GPU-bbbb,GPU-cccc,GPU-aaaa1", "bbbb2222"},
			{"uuid twice", "GPU-bbbb,GPU-bbbb2222", ""},
			{"number among uuids ends the list", "GPU-bbbb,1", "bbbb2222"},
			{"uuid among numbers ends the list", "1,GPU-bbbb", "aaaa1111"},
			{"upper case is unknown", "GPU-BBBB", ""},
			{"MIG id without MIG", "MIG-bbbb", ""},
			{"trailing comma", "0,", "bbbb2222"},
		}
		if got := n.devices(t); got != all {
			t.Errorf("without the variable: %q, want %q", got, all)
		}
		if got, want := n.devices(t, "CUDA_DEVICE_ORDER=PCI_BUS_ID"), "aaaa1111 aaaa0000 bbbb2222"; got != want {
			t.Errorf("by bus id: %q, want %q", got, want)
		}
		for _, tt := range tests {
			if got := n.devices(t, "CUDA_VISIBLE_DEVICES="+tt.list); got != tt.want {
				t.Errorf("%s: %q shows %q, want %q", tt.name, tt.list, got, tt.want)
			}
		}
		n.simgpu(t, "lose", "2")
		if got, want := n.devices(t), "aaaa1111 aaaa0000"; got != want {
			t.Errorf("with a lost GPU: %q, want %q", got, want)
		}
	})
}

// MIG User Guide, "CUDA Device Enumeration": one compute instance, and no whole
// GPU beside it.
func TestVisibleMIGDevices(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, threeGPUs)
		n.simgpu(t, "mig", "2", "on")
		if got, want := n.devices(t), "aaaa1111 aaaa0000"; got != want {
			t.Errorf("MIG on without instances: %q, want %q", got, want)
		}
		n.simgpu(t, "mig", "2", "create", "3g.20gb@4", "1g.5gb@0")
		mig := n.shown(t).GPUs[2].Devices
		if len(mig) != 2 {
			t.Fatalf("%d MIG devices, want 2", len(mig))
		}
		first, second := mig[0].UUID, mig[1].UUID
		short := func(u string) string { return strings.TrimPrefix(u, "MIG-")[:8] }
		tests := []struct{ name, list, want string }{
			{"by id", second, short(second)},
			{"two are one", second + "," + first, short(second)},
			{"one twice", first + "," + first, ""},
			{"not abbreviated", second[:16], ""},
			{"unknown first", "MIG-00000000-0000-0000-0000-000000000000," + first, ""},
			{"parent means its first", "GPU-bbbb2222", short(first)},
			{"parent hides the others", "GPU-aaaa1,GPU-bbbb2222", short(first)},
			{"other GPUs alone", "GPU-aaaa1,GPU-aaaa0", "aaaa1111 aaaa0000"},
		}
		if got, want := n.devices(t), short(first); got != want {
			t.Errorf("without the variable: %q, want %q", got, want)
		}
		for _, tt := range tests {
			if got := n.devices(t, "CUDA_VISIBLE_DEVICES="+tt.list); got != tt.want {
				t.Errorf("%s: %q shows %q, want %q", tt.name, tt.list, got, tt.want)
			}
		}
		// The memory and the multiprocessors are those of the instance.
		for uuid, want := range map[string]string{first: "MIG 3g.20gb, 19959 MiB, 42 multi", second: "MIG 1g.5gb, 4861 MiB, 14 multi"} {
			if out, _ := n.job(t, "devices", "CUDA_VISIBLE_DEVICES="+uuid); !strings.Contains(out, want) {
				t.Errorf("%s is not %q:\n%s", uuid, want, out)
			}
		}
		wantJob(t, n, "alloc 5000", "context on device 0: ok\nalloc 5000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1,
			"CUDA_VISIBLE_DEVICES="+second)
	})
}

// A process holds what it allocates, and a context besides; SIGKILL frees it.
func TestMemory(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		const total, overhead = 15360 - 393, 64 + 2*40
		wantJob(t, n, "alloc 1000 info free info", fmt.Sprintf(`
context on device 0: ok
alloc 1000 MiB: ok
info %d MiB free of %d MiB: ok
free: ok
info %d MiB free of %d MiB: ok`, total-overhead-1000, total, total-overhead, total), 0)
		wantJob(t, n, "go on alloc 10000 alloc 6000 alloc 3000 exit 7", `
context on device 0: ok
alloc 10000 MiB: ok
alloc 6000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory
alloc 3000 MiB: ok`, 7)

		a := n.start(t, "alloc 9000 until eof")
		a.line("alloc 9000 MiB: ok")
		s := n.shown(t)
		if s.GPUs[0].Used != 9000+overhead || len(s.Processes) != 1 || s.Processes[0].PID != a.cmd.Process.Pid {
			t.Errorf("the state says %+v", s)
		}
		wantJob(t, n, "alloc 6000", "context on device 0: ok\nalloc 6000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1)
		_ = a.cmd.Process.Kill() // not waited for: a zombie has no memory
		n.eventually(t, "free of the killed job", func(s shown) bool { return s.GPUs[0].Used == 0 && len(s.Processes) == 0 })
		wantJob(t, n, "alloc 6000", "context on device 0: ok\nalloc 6000 MiB: ok", 0)

		b := n.start(t, "alloc 2000 free alloc 100 until eof")
		b.line("alloc 100 MiB: ok")
		if p := n.shown(t).Processes[0]; p.Peak != 2000+overhead || p.Memory != 100+overhead {
			t.Errorf("memory %d, peak %d MiB; want %d, %d", p.Memory, p.Peak, 100+overhead, 2000+overhead)
		}
		if code := b.end(); code != 0 {
			t.Errorf("the job ended with %d", code)
		}
	})
}

// The compute modes of nvml.h and of the CUDA C++ Programming Guide.
func TestComputeModes(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		const unavailable = "context on device 0: error 46 CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
		n.make(t, `{"gpus": [{"model": "T4", "compute_mode": "exclusive-process"}, {"model": "A100-40"}]}`)
		const t4 = "CUDA_VISIBLE_DEVICES=1"
		a := n.start(t, "context until eof", t4)
		a.line("context on device 0: ok")
		wantJob(t, n, "context", unavailable, 1, t4)
		wantJob(t, n, "context", "context on device 0: ok", 0, "CUDA_VISIBLE_DEVICES=0") // the other GPU
		if code := a.end(); code != 0 {
			t.Errorf("the holder ended with %d", code)
		}
		wantJob(t, n, "context", "context on device 0: ok", 0, t4)
		n.simgpu(t, "mode", "0", "prohibited")
		wantJob(t, n, "context", unavailable, 1, t4)
		n.simgpu(t, "mode", "0", "default")
		b := n.start(t, "context until eof", t4)
		b.line("context on device 0: ok")
		wantJob(t, n, "context", "context on device 0: ok", 0, t4)
	})
}

// A kernel's load stands in the state while it runs, and ends with its process.
func TestLoad(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		a := n.start(t, "load 40 1000s")
		b := n.start(t, "load 25 1ms until eof")
		n.eventually(t, "40 % busy", func(s shown) bool { return s.GPUs[0].Load == 40 })
		b.line("load 25 1ms: ok")
		if got := n.shown(t).GPUs[0].Load; got != 40 {
			t.Errorf("load %d %% after the short kernel, want 40", got)
		}
		_ = a.cmd.Process.Kill()
		n.eventually(t, "idle", func(s shown) bool { return s.GPUs[0].Load == 0 })
	})
}

// What simgpu injects reaches a program that runs.
func TestInjectedFaults(t *testing.T) {
	tests := []struct {
		name   string
		inject []string
		want   string
	}{
		{"lost", []string{"lose", "0"}, "until eof: error 999 CUDA_ERROR_UNKNOWN: unknown error"},
		{"ECC", []string{"ecc", "0", "uncorrected", "1"}, "until eof: error 214 CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"},
		{"planned", []string{"fail", "0", "cuCtxSynchronize", "719", "1"}, "until eof: error 719 CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"},
	}
	legs(t, func(t *testing.T, n *Node) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				n.make(t, `{"gpus": [{"model": "T4"}]}`)
				a := n.start(t, "context until eof")
				a.line("context on device 0: ok")
				n.simgpu(t, tt.inject...)
				if got := a.line("until eof"); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if code := a.end(); code != 1 {
					t.Errorf("the job ended with %d, want 1", code)
				}
			})
		}
	})
}

// A hanging GPU holds its callers until it is released.
func TestHang(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		for _, hang := range [][]string{{"hang", "0"}, {"hang", "any", "cuMemAlloc*"}} {
			n.simgpu(t, hang...)
			a := n.start(t, "devices alloc 10 until eof")
			a.line("init: ok")
			n.simgpu(t, "release", "any")
			a.line("alloc 10 MiB: ok")
			if code := a.end(); code != 0 {
				t.Errorf("%v: the job ended with %d", hang, code)
			}
		}
	})
}

// A kernel that goes wrong leaves its XID and a context that answers nothing else.
func TestKernelFaults(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		for _, tt := range []struct {
			kind, want string
			xid        int
		}{
			{"illegal_address", "error 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", 31},
			{"illegal_instruction", "error 715 CUDA_ERROR_ILLEGAL_INSTRUCTION: an illegal instruction was encountered", 13},
			{"assert", "error 710 CUDA_ERROR_ASSERT: device-side assert triggered", 43},
		} {
			wantJob(t, n, "go on fault "+tt.kind+" alloc 1 load 10 1ms",
				fmt.Sprintf("context on device 0: ok\nfault %s: %s\nalloc 1 MiB: %[2]s\nload 10 1ms: %[2]s", tt.kind, tt.want), 1)
			if got := n.shown(t).GPUs[0].XID; got != tt.xid {
				t.Errorf("%s: XID %d, want %d", tt.kind, got, tt.xid)
			}
		}
		wantJob(t, n, "go on exit on 700 fault illegal_address alloc 1",
			"context on device 0: ok\nfault illegal_address: error 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", 1)
		wantJob(t, n, "fault nonesuch", "context on device 0: ok\nfault nonesuch: error 500 CUDA_ERROR_NOT_FOUND: named symbol not found", 1)
	})
}

// CUDA does not survive fork.
func TestFork(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		wantJob(t, n, "context fork sync", "context on device 0: ok\nsync: error 3 CUDA_ERROR_NOT_INITIALIZED: initialization error", 1)
		wantJob(t, n, "fork context", "context on device 0: ok", 0)
	})
}

// Without a driver there is no device.
func TestNoDriver(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		const none = "init: error 100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
		wantJob(t, n, "devices", none, 1) // no state file yet
		n.make(t, `{"gpus": []}`)
		wantJob(t, n, "devices", none, 1)
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		n.simgpu(t, "driver", "missing")
		wantJob(t, n, "devices", none, 1)
		n.simgpu(t, "driver", "loaded")
		wantJob(t, n, "context", "context on device 0: ok", 0)
	})
}

// The names and texts of the results are those of the real library.
func TestResultsAreTheReal(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	ours, code := n.job(t, "results")
	if code != 0 || strings.Count(ours, "\n") < 20 {
		t.Fatalf("simjob results: exit code %d:\n%s", code, ours)
	}
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			real, code := n.job(t, "results", "LD_LIBRARY_PATH="+driver.Libraries(driver.Dir(t, branch)))
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, real)
			}
			known := map[string]bool{}
			for _, l := range strings.Split(real, "\n") {
				known[l] = true
			}
			for _, l := range strings.Split(strings.TrimSpace(ours), "\n") {
				if younger := branch == "535" && strings.HasPrefix(l, "915 "); !known[l] && !younger { // 915 came with 12.4
					t.Errorf("the real libcuda does not say %q", l)
				}
			}
		})
	}
}

// The library exports CUDA's names and nothing of the simulator.
func TestCUDAExports(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	out, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only", filepath.Join(n.Lib(), "libcuda.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	real, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only",
		filepath.Join(driver.Libraries(driver.Dir(t, "550")), "libcuda.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(l)
		if name := f[len(f)-1]; !bytes.Contains(real, []byte(" "+name+"\n")) {
			t.Errorf("%s is no function of libcuda 550", name)
		}
	}
}

// Eight processes that take all they can get never get more than there is.
func TestRacingAllocations(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		const total, overhead, step = 15360 - 393, 64 + 2*40, 500
		var jobs []*running
		for range 8 {
			jobs = append(jobs, n.start(t, "go on context"+strings.Repeat(fmt.Sprintf(" alloc %d", step), 40)+" sync until eof"))
		}
		want := 0
		for _, j := range jobs {
			j.line("sync")
			for _, l := range j.said() {
				switch {
				case strings.HasPrefix(l, "alloc") && strings.HasSuffix(l, "ok"):
					want += step
				case strings.HasPrefix(l, "context") && strings.HasSuffix(l, "ok"):
					want += overhead
				}
			}
		}
		if used := n.shown(t).GPUs[0].Used; used != want || used > total || total-used >= step {
			t.Errorf("%d MiB used of %d, the jobs hold %d", used, total, want)
		}
	})
}
