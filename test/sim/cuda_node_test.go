package sim

import (
	"bufio"
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

	"github.com/gpuslot/gpuslot/test/poll"
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
	if !poll.Until(patience, 5*time.Millisecond, func() bool { return so(n.shown(t)) }) {
		t.Fatalf("never %s:\n%s", what, n.simgpu(t, "show"))
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
