//go:build cgo

package cuda_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/sim"
)

// The test binary is also the client: its environment is the order's alone, so
// an argument says so.
const verb = "cuda-client"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == verb {
		os.Exit(cuda.Main(os.Args[2:], os.Stdin, os.Stdout))
	}
	alone.Enter()
	os.Exit(m.Run())
}

// patience is far above what any step takes here.
const patience = 5 * time.Minute

// gpuNode is a simulated GPU with, or without, a control daemon.
type gpuNode struct {
	t    *testing.T
	node *sim.Node
	pipe string
	uuid string
}

func newNode(t *testing.T) *gpuNode {
	t.Helper()
	node := sim.New(t, "550.163.01", "V100S")
	pipe, err := os.MkdirTemp("", "m") // a pipe directory may have 87 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(pipe) })
	if err := os.Chmod(pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	n := &gpuNode{t: t, node: node, pipe: pipe}
	n.copy("lib/libcuda.so.1", "bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-server")
	var shown struct {
		GPUs []struct{ UUID string } `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(n.simgpu("show", "--json")), &shown); err != nil || len(shown.GPUs) != 1 {
		t.Fatalf("%v: %+v", err, shown)
	}
	n.uuid = shown.GPUs[0].UUID
	return n
}

// copy puts programs where every account reaches them.
func (n *gpuNode) copy(names ...string) {
	n.t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(n.node.Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(n.pipe, filepath.Base(name)), b, 0o755)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *gpuNode) simgpu(args ...string) string {
	n.t.Helper()
	out, code := n.node.Run(n.t.Context(), filepath.Join(n.node.Dir, "bin/simgpu"), args...)
	if code != 0 {
		n.t.Fatalf("simgpu %v: %s", args, out)
	}
	return out
}

// daemon runs a control daemon until the test ends; its commands come after.
func (n *gpuNode) daemon(commands ...string) {
	n.t.Helper()
	program := filepath.Join(n.pipe, "nvidia-cuda-mps-control")
	env := append(n.node.Env(), "CUDA_MPS_PIPE_DIRECTORY="+n.pipe, "CUDA_MPS_LOG_DIRECTORY="+n.pipe, "CUDA_VISIBLE_DEVICES="+n.uuid,
		"PATH="+n.pipe+":"+os.Getenv("PATH"))
	say := func(text string) {
		c := exec.Command(program)
		c.Env, c.Stdin = env, strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			n.t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
	c := exec.Command(program, "-d")
	c.Env = env
	if out, err := c.CombinedOutput(); err != nil {
		n.t.Fatalf("start the control daemon: %v\n%s", err, out)
	}
	n.t.Cleanup(func() { say("quit\n") })
	say(strings.Join(commands, "\n") + "\n")
}

// job is a job's environment on this node.
func (n *gpuNode) job(more ...string) []string {
	return append([]string{"GPUSLOT_SIM_STATE=" + n.node.State, "LD_LIBRARY_PATH=" + n.pipe, "CUDA_VISIBLE_DEVICES=" + n.uuid, "CUDA_MPS_PIPE_DIRECTORY=" + n.pipe}, more...)
}

func (n *gpuNode) start(o cuda.Order) *cuda.Client {
	n.t.Helper()
	if o.Below == 0 {
		o.Below, o.Above = 1024, 4097
	}
	c, err := cuda.Start(n.t.Context(), "/proc/self/exe", []string{verb}, o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.End() })
	return c
}

func tried(t *testing.T, c *cuda.Client) cuda.Report {
	t.Helper()
	select {
	case <-c.Tried():
		return c.Report()
	case <-time.After(patience):
		t.Fatalf("the client is not done: %+v", c.Report())
		return cuda.Report{}
	}
}

func spell(r cuda.Report) string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%s: %s\n", s.Name, s.Result)
	}
	return b.String()
}

const untilAbove = `libcuda.so.1: loaded
cuInit: CUDA_SUCCESS
cuDeviceGetCount: CUDA_SUCCESS
cuDevicePrimaryCtxRetain: CUDA_SUCCESS
cuMemGetInfo: CUDA_SUCCESS
cuMemAlloc below the limit: CUDA_SUCCESS
cuMemFree: CUDA_SUCCESS
cuMemAlloc above the limit: `

const jobLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M"

// TestClient: each way in which a GPU serves a job, or does not.
func TestClient(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*gpuNode)
		env  []string
		want string
	}{
		{"as promised", func(n *gpuNode) { n.daemon("set_default_device_pinned_mem_limit 0 31G") }, []string{jobLimit}, untilAbove + "CUDA_ERROR_OUT_OF_MEMORY\n"},
		{"the daemon's limit alone", func(n *gpuNode) { n.daemon("set_default_device_pinned_mem_limit 0 4G") }, nil, untilAbove + "CUDA_ERROR_OUT_OF_MEMORY\n"},
		{"a daemon without limits", func(n *gpuNode) { n.daemon("get_server_list") }, nil, untilAbove + "CUDA_SUCCESS\n"},
		{"no daemon: MPS fails open", func(*gpuNode) {}, []string{jobLimit}, untilAbove + "CUDA_SUCCESS\n"},
		{"no daemon, exclusive-process", func(n *gpuNode) {
			n.simgpu("mode", "0", "exclusive-process")
			n.simgpu("process", "add", fmt.Sprint(os.Getpid()), "0", "1")
		},
			nil, "libcuda.so.1: loaded\ncuInit: CUDA_SUCCESS\ncuDeviceGetCount: CUDA_SUCCESS\ncuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE\n"},
		{"a lost GPU", func(n *gpuNode) { n.simgpu("lose", "0") }, nil, "libcuda.so.1: loaded\ncuInit: CUDA_ERROR_NO_DEVICE\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.do(n)
			c := n.start(cuda.Order{Environment: n.job(tt.env...)})
			r := tried(t, c)
			if got := spell(r); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			if !r.Tried || r.In != "" || r.CUDA == nil || *r.CUDA != 12040 {
				t.Errorf("report = %+v", r)
			}
			if _, ok := r.Step(cuda.StepInfo); ok && (*r.Devices != 1 || *r.Total>>20 < 32000 || *r.Free > *r.Total) {
				t.Errorf("%d devices, %d of %d bytes free", *r.Devices, *r.Free, *r.Total)
			}
			if !c.End() {
				t.Error("it does not end")
			}
			if got := c.Report().Ended; got != "exit status 0" {
				t.Errorf("ended with %s", got)
			}
		})
	}
}

// TestClientIsHeld: it stays attached until it is let go.
func TestClientIsHeld(t *testing.T) {
	n := newNode(t)
	n.daemon("set_default_device_pinned_mem_limit 0 4G")
	c := n.start(cuda.Order{Environment: n.job()})
	tried(t, c)
	line := fmt.Sprintf(`"pid": %d`, c.PID())
	if shown := n.simgpu("show", "--json"); !strings.Contains(shown, line) {
		t.Errorf("no %s in %s", line, shown)
	}
	if !c.End() {
		t.Error("it does not end")
	}
	if shown := n.simgpu("show", "--json"); strings.Contains(shown, line) {
		t.Errorf("%s is left", line)
	}
}

// TestClientThatHangs: the report says where, and the end is the kernel's.
func TestClientThatHangs(t *testing.T) {
	n := newNode(t)
	n.simgpu("hang", "any", "cuInit")
	c := n.start(cuda.Order{Environment: n.job()})
	for deadline := time.Now().Add(patience); c.Report().In != cuda.StepInit; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("report = %+v", c.Report())
		}
	}
	if !c.End() {
		t.Error("it does not end")
	}
	if r := c.Report(); r.Tried || r.Ended != "signal: killed" {
		t.Errorf("report = %+v", r)
	}
}

// TestOtherAccountWaits: MPS serves one account at a time.
func TestOtherAccountWaits(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	n.daemon("set_default_device_pinned_mem_limit 0 4G")
	first := n.start(cuda.Order{Environment: n.job(), Account: &cuda.Account{UID: 1234, GID: 1234}})
	if got := spell(tried(t, first)); !strings.HasSuffix(got, "OUT_OF_MEMORY\n") {
		t.Fatalf("the first one: %s", got)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", first.PID()))
	if err != nil || !strings.Contains(string(status), "Uid:\t1234\t1234\t1234\t1234\nGid:\t1\t1\t1\t1\n") || !strings.Contains(string(status), "Groups:\t1234 \n") ||
		!strings.Contains(string(status), "CapEff:\t0000000000000000\n") {
		t.Errorf("%v: %s", err, status)
	}
	second := n.start(cuda.Order{Environment: n.job(), Account: &cuda.Account{UID: 1235, GID: 1235}})
	for deadline := time.Now().Add(patience); second.Report().In != cuda.StepInit; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("report = %+v", second.Report())
		}
	}
	first.End()
	if got := spell(tried(t, second)); !strings.HasSuffix(got, "OUT_OF_MEMORY\n") {
		t.Errorf("the second one, when the first is gone: %s", got)
	}
}

// TestEnvironmentIsTheOrders: nothing of the parent's comes along.
func TestEnvironmentIsTheOrders(t *testing.T) {
	n := newNode(t)
	want := n.job(jobLimit)
	c := n.start(cuda.Order{Environment: want})
	tried(t, c)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.PID()))
	got := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
	none := n.start(cuda.Order{})
	tried(t, none)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", none.PID())); err != nil || len(b) != 0 {
		t.Errorf("%v: %q", err, b)
	}
}

// TestNoLibrary: what the dynamic linker says is the report.
func TestNoLibrary(t *testing.T) {
	n := &gpuNode{t: t}
	c := n.start(cuda.Order{})
	r := tried(t, c)
	if s, ok := r.Step(cuda.StepLoad); !ok || s.Code != cuda.NotLoaded || !strings.Contains(s.Text, "libcuda.so.1") {
		if ok && s.Code == cuda.Success {
			t.Skip("this machine has a libcuda.so.1")
		}
		t.Errorf("report = %+v", r)
	}
	if !c.End() || c.Report().Ended != "exit status 0" {
		t.Errorf("it has no context to release, and ends with %s", c.Report().Ended)
	}
}

// TestOrphan: a client that nobody waits for ends by itself, even in a call
// that does not return.
func TestOrphan(t *testing.T) {
	n := newNode(t)
	n.simgpu("hang", "any", "cuInit")
	c := exec.Command("/proc/self/exe", verb, "1", "2")
	c.Env = n.job()
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	_ = in.Close() // as the parent's end does
	select {
	case <-ended:
		if code := c.ProcessState.ExitCode(); code != 3 {
			t.Errorf("exit status %d", code)
		}
	case <-time.After(patience):
		_ = c.Process.Kill()
		t.Error("it lives on")
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if syscall.Geteuid() != 0 {
		t.Skip("changing accounts needs root")
	}
}
