//go:build cgo

package nvml_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/test/sim"
)

// listener tells this test binary to be the one that listens on the simulated
// node: a process loads one NVML, and finds it by its environment. Its value is
// the GPUs to ask for their condition.
const listener = "GPUSLOT_TEST_LISTENER"

// TestListener is the process of the tests below: it prints what it hears, and
// conditions for each line that it reads.
func TestListener(t *testing.T) {
	of := strings.Fields(os.Getenv(listener))
	if len(of) == 0 {
		t.Skip("run by the tests on the simulated node")
	}
	l, err := nvml.Open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- l.Watch(ctx,
			func(e gpu.Event) {
				fmt.Printf("event %s %s %d %d %d\n", e.GPU, e.Kind, e.XID, e.GPUInstance, e.ComputeInstance)
			},
			func(s nvml.Listening) { fmt.Printf("state %s %v %v\n", s.GPU, s.Kinds, s.Err) })
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		uuids := make([]gpu.UUID, len(of))
		for i, u := range of {
			uuids[i] = gpu.UUID(u)
		}
		limit, done := context.WithTimeout(ctx, 10*time.Second)
		all, err := l.Conditions(limit, uuids)
		done()
		if err != nil {
			fmt.Printf("conditions %v\n", err)
			continue
		}
		for _, c := range all {
			fmt.Println("condition", spell(c))
		}
	}
	cancel()
	fmt.Printf("ended %v\n", <-ended)
}

func spell(c gpu.Condition) string {
	return fmt.Sprintf("%s lost=%t err=%v volatile=%s aggregate=%s pending=%s failed=%s pages=%s recovery=%s energy=%t",
		c.GPU, c.Lost, c.Err, or(c.UncorrectedVolatile), or(c.UncorrectedAggregate), or(c.RowsPending), or(c.RowFailed), or(c.PagesPending), or(c.Recovery), c.Energy != nil)
}

func or[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

// onNode is a listener and the node on which it lives.
type onNode struct {
	t     *testing.T
	node  *sim.Node
	uuids []string
	lines chan string
	ask   func()
	close func()
}

func listenOn(t *testing.T, node *sim.Node, count int) *onNode {
	t.Helper()
	o := &onNode{t: t, node: node, lines: make(chan string, 1000)}
	for _, line := range strings.Split(o.simgpu("show"), "\n") {
		for _, f := range strings.Fields(line) {
			if strings.HasPrefix(f, "GPU-") && len(o.uuids) < count {
				o.uuids = append(o.uuids, strings.Trim(f, ",()"))
			}
		}
	}
	if len(o.uuids) != count {
		t.Fatalf("simgpu show names %d GPUs, want %d:\n%s", len(o.uuids), count, o.simgpu("show"))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestListener$", "-test.timeout=5m")
	cmd.Env = append(node.Env(), listener+"="+strings.Join(o.uuids, " "))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			o.lines <- s.Text()
		}
		close(o.lines)
	}()
	o.ask = func() { _, _ = in.Write([]byte("\n")) }
	o.close = func() { _ = in.Close() }
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return o
}

func (o *onNode) simgpu(args ...string) string {
	o.t.Helper()
	out, code := o.node.Run(o.t.Context(), filepath.Join(o.node.Dir, "bin/simgpu"), args...)
	if code != 0 {
		o.t.Fatalf("simgpu %v: %s", args, out)
	}
	return out
}

// hear waits for a line with every part, and fails if one of the others comes
// first.
func (o *onNode) hear(parts string, not ...string) string {
	o.t.Helper()
	late := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-o.lines:
			if !ok {
				o.t.Fatalf("the listener ended before %q", parts)
			}
			for _, n := range not {
				if strings.Contains(line, n) {
					o.t.Fatalf("%q while waiting for %q", line, parts)
				}
			}
			if strings.HasPrefix(line, parts) || strings.Contains(line, " "+parts) {
				return line
			}
		case <-late:
			o.t.Fatalf("%q has not come", parts)
		}
	}
}

func TestWatchOnSimulatedNode(t *testing.T) {
	for _, driver := range []string{"535.261.03", "580.95.05"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			o := listenOn(t, sim.New(t, driver, "A100-40", "V100S", "T4"), 3)
			for range o.uuids {
				o.hear("state GPU-")
			}
			a, b := o.uuids[0], o.uuids[1]
			o.simgpu("xid", "0", "31")
			o.hear("event "+a+" xid 31 -1 -1", "event "+b)
			o.simgpu("ecc", "1", "uncorrected", "2")
			o.hear("event "+b+" double-bit-ecc 0", "event "+a)
			o.hear("event "+b+" xid 48", "event "+a)
			o.simgpu("ecc", "1", "corrected", "2")
			o.hear("event "+b+" single-bit-ecc 0", "event "+a)
			o.simgpu("remap", "0", "failure", "1")
			o.hear("event "+a+" xid 64", "event "+b)

			o.simgpu("lose", "0")
			o.hear("event " + a + " xid 79")
			o.hear("event " + a + " lost")
			// Its neighbours are heard while it is lost, and it is not told again and again.
			for range 3 {
				o.simgpu("xid", "1", "13")
				o.hear("event "+b+" xid 13", "event "+a)
			}
			o.ask()
			o.hear("condition "+a+" lost=true", "conditions")
			o.hear("condition " + b + " lost=false err=<nil> volatile=2 aggregate=2 pending=- failed=- pages=false")
			o.simgpu("restore", "0")
			o.hear("state "+a+" [", "event "+a)
			o.simgpu("xid", "0", "119")
			o.hear("event " + a + " xid 119")
			o.ask()
			o.hear("condition " + a + " lost=false err=<nil> volatile=0 aggregate=0 pending=false failed=true pages=- recovery=")
			o.close()
			o.hear("ended <nil>")
		})
	}
}

// A GPU that hangs silences no other, and its calls are named at the end.
func TestWatchNextToAHangingGPU(t *testing.T) {
	t.Parallel()
	o := listenOn(t, sim.New(t, "550.163.01", "A100-40", "A100-40"), 2)
	for range o.uuids {
		o.hear("state GPU-")
	}
	o.simgpu("hang", "any", "nvmlDeviceGetCount*") // the next look for GPUs, and the conditions
	o.ask()
	o.hear("conditions read the condition of the GPUs: nvmlDeviceGetCount has not returned")
	for i, u := range o.uuids {
		o.simgpu("xid", fmt.Sprint(i), "43")
		o.hear("event " + u + " xid 43")
	}
	o.simgpu("hang", "any", "nvmlEventSetWait*")
	o.close()
	o.hear("nvmlEventSetWait of GPU-") // beside the look for GPUs, if that was under way
}

// Of a MIG GPU the event names the instances.
func TestWatchNamesMIGInstances(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("MIG needs root on the simulated node too")
	}
	o := listenOn(t, sim.New(t, "550.163.01", "A100-40"), 1)
	o.hear("state GPU-")
	o.simgpu("mig", "0", "on")
	o.simgpu("mig", "0", "create", "3g.20gb@4")
	o.simgpu("xid", "0", "31", "1", "0")
	o.hear("xid 31 1 0")
}
