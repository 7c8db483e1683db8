package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/poll"
	"github.com/gpuslot/gpuslot/test/sim"
)

func TestMain(m *testing.M) {
	alone.Enter() // jobs are found in /proc
	os.Exit(m.Run())
}

// simDir is set in the process that runs a scenario: NVML is found by
// LD_LIBRARY_PATH, which is read when a process starts.
const simDir = "GPUSLOT_TEST_USAGE_SIM"

// patience bounds what the node does in milliseconds.
const patience = time.Minute

// onNode runs a test in a process of its own that lives on a simulated node.
func onNode(t *testing.T, scenario func(*node), models ...string) {
	t.Helper()
	if dir := os.Getenv(simDir); dir != "" {
		scenario(open(t, dir))
		return
	}
	runOn(t, sim.New(t, "550.163.01", models...))
}

// runOn runs the test that calls it again, on a node.
func runOn(t *testing.T, n *sim.Node) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(n.Env(), simDir+"="+n.Dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// node is the node from inside, with the agent's part played by the test: it
// knows which process belongs to which slot.
type node struct {
	*testing.T
	dir      string
	library  *nvml.Library
	gpus     []gpu.GPU
	slots    map[int]usage.SlotKey
	bookings []usage.Reservation
	servers  map[int]bool
	// jumped is how far the node's clock was put forward.
	jumped time.Duration
}

func (n *node) Slot(pid int, _ uint64) (usage.SlotKey, bool) { k, ok := n.slots[pid]; return k, ok }
func (n *node) Reservations() []usage.Reservation            { return n.bookings }
func (n *node) Server(pid int, _ uint64) bool                { return n.servers[pid] }

func open(t *testing.T, dir string) *node {
	n := &node{T: t, dir: dir, slots: map[int]usage.SlotKey{}, servers: map[int]bool{}}
	n.library = must(nvml.Open())(t)
	t.Cleanup(func() {
		if err := n.library.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	n.look()
	return n
}

// look reads the inventory.
func (n *node) look() {
	n.Helper()
	inv, unreadable, err := n.library.Inventory(n.Context())
	if err != nil || len(unreadable) > 0 {
		n.Fatal(err, unreadable)
	}
	n.gpus = inv.GPUs
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// sampler samples by hand, in the node's time.
func (n *node) sampler() *usage.Sampler {
	n.Helper()
	u := n.library.Usage()
	n.Cleanup(func() {
		if err := u.Close(context.Background()); err != nil {
			n.Error(err)
		}
	})
	return usage.NewSampler(usage.Options{Source: u, Site: n, Interval: time.Second, Now: func() time.Time { return time.Now().Add(n.jumped) }})
}

// second lets a second of the node's time pass and samples.
func (n *node) second(s *usage.Sampler) *usage.Snapshot {
	n.Helper()
	n.simgpu("clock", "+1")
	n.jumped += time.Second
	s.Round(n.Context())
	return s.Snapshot()
}

func (n *node) simgpu(args ...string) string {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(n.dir, "bin/simgpu"), args...).CombinedOutput()
	if err != nil {
		n.Fatalf("simgpu %v: %v: %s", args, err, out)
	}
	return string(out)
}

// daemon starts the control daemon of a device; the returned variables make a
// job its client.
func (n *node) daemon(device gpu.UUID, percent int) (vars []string) {
	n.Helper()
	dir := must(os.MkdirTemp("", "mps"))(n.T)
	n.Cleanup(func() { _ = os.RemoveAll(dir) })
	vars = []string{"CUDA_MPS_PIPE_DIRECTORY=" + dir, "CUDA_MPS_LOG_DIRECTORY=" + dir}
	program := filepath.Join(n.dir, "bin/nvidia-cuda-mps-control")
	d := exec.Command(program, "-f")
	d.Env = append(append(os.Environ(), vars...), "CUDA_VISIBLE_DEVICES="+string(device), "PATH="+filepath.Join(n.dir, "bin")+":/usr/bin:/bin")
	if err := d.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		n.control(vars, "quit -t 1")
		_ = d.Process.Kill()
		_ = d.Wait()
	})
	n.until("the control daemon listens", func() bool { _, err := os.Stat(filepath.Join(dir, "control")); return err == nil })
	n.control(vars, fmt.Sprintf("set_default_active_thread_percentage %d", percent))
	return vars
}

// control gives the daemon one command.
func (n *node) control(vars []string, command string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(n.dir, "bin/nvidia-cuda-mps-control"))
	c.Env, c.Stdin = append(os.Environ(), vars...), strings.NewReader(command+"\n")
	out, err := c.Output()
	if err != nil {
		n.Logf("%s: %v", command, err)
	}
	return strings.TrimSpace(string(out))
}

// until waits for what the node does by itself in milliseconds.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	if !poll.Until(patience, 5*time.Millisecond, done) {
		n.Fatalf("not seen: %s", what)
	}
}

// job is one simjob.
type job struct {
	key   usage.SlotKey
	pid   int
	input io.WriteCloser
	stop  func()
}

// job starts a simjob in a slot; it is killed at the end.
func (n *node) job(slot string, device gpu.UUID, vars []string, words string) *job {
	n.Helper()
	c := exec.Command(filepath.Join(n.dir, "bin/simjob"), strings.Fields(words)...)
	c.Env = append(append(os.Environ(), "CUDA_VISIBLE_DEVICES="+string(device)), vars...)
	var said bytes.Buffer // read when the job has ended
	j := &job{}
	c.Stdout, c.Stderr = &said, &said
	j.input = must(c.StdinPipe())(n.T)
	if err := c.Start(); err != nil {
		n.Fatal(err)
	}
	ended := false
	j.stop = func() {
		if !ended {
			ended = true
			_ = c.Process.Kill()
			_ = c.Wait()
			n.Logf("%s:\n%s", slot, said.String())
		}
	}
	n.Cleanup(j.stop)
	j.pid = c.Process.Pid
	j.key = usage.SlotKey{Slot: slot, Starter: c.Process.Pid, Started: 1}
	n.slots[c.Process.Pid] = j.key
	return j
}

// state is what simgpu says: the truth.
type state struct {
	Processes []struct {
		PID    int `json:"pid"`
		Memory int `json:"memory_mib"`
		Load   int `json:"load"`
	} `json:"processes"`
	Servers []struct {
		PID int `json:"pid"`
	} `json:"mps_servers"`
}

// truth asks the simulator, and learns which processes are MPS servers.
func (n *node) truth() (load map[int]float64, memory map[int]gpu.Bytes) {
	n.Helper()
	var s state
	if err := json.Unmarshal([]byte(n.simgpu("show", "--json")), &s); err != nil {
		n.Fatal(err)
	}
	load, memory = map[int]float64{}, map[int]gpu.Bytes{}
	for _, p := range s.Processes {
		load[p.PID] = float64(p.Load) / 100
		memory[p.PID] = gpu.Bytes(p.Memory) << 20
	}
	for _, p := range s.Servers {
		n.servers[p.PID] = true
	}
	return load, memory
}

// works waits until a job has so much memory at least and this load.
func (n *node) works(j *job, mib int, load float64) {
	n.Helper()
	n.until(j.key.Slot+" works", func() bool {
		l, m := n.truth()
		return m[j.pid] >= gpu.Bytes(mib)<<20 && l[j.pid] == load
	})
}
