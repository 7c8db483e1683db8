package pictures

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/poll"
	"github.com/gpuslot/gpuslot/test/sim"
)

func TestMain(m *testing.M) {
	alone.Enter() // the agent finds jobs in /proc
	os.Exit(m.Run())
}

var accepting = regexp.MustCompile(`(?m)^gpuslot_gpu_accepting\{.*\} 1$`)

// patience ends a broken run: the node does by itself in seconds what is waited for.
const patience = 5 * time.Minute

// jobCluster and jobUID are numbers that nothing else on a page has by chance.
const (
	jobCluster = 70707
	jobUID     = 642427
)

// node is a simulated GPU node with a real gpuslotd and jobs on it.
type node struct {
	*testing.T
	dir, metrics string
	sim          *sim.Node
	uuids        []string
	jobs         int
}

// The node's GPUs: one that tells its SM activity, one that does not, and one
// with MIG devices.
const (
	hopper = iota
	volta
)

// newNode starts it: two jobs on the Hopper, one on the Volta, which uses more
// than it asked for, after one that met a server in FAULT.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the agent serves jobs of other accounts")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("needs unshare (util-linux): the agent is to see more CPUs than this machine has")
	}
	dir, err := os.MkdirTemp("", "p") // short: pipe directories have 87 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{T: t, dir: dir, metrics: freePort(t), sim: sim.New(t, "550.163.01", "H100-80", "V100S", "H100-80")}
	n.furnish()
	n.simgpu("mig", "2", "on")
	n.simgpu("mig", "2", "create", "3g.40gb", "3g.40gb")
	var s struct {
		GPUs []struct {
			UUID string `json:"uuid"`
		} `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(n.simgpu("show", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	for _, g := range s.GPUs {
		n.uuids = append(n.uuids, g.UUID)
	}
	n.start("unshare", "-m", "sh", "-c", "mount --bind "+n.path("online")+" /sys/devices/system/cpu/online && exec "+
		n.path("bin/gpuslotd")+" --no-systemd --config "+n.path("gpuslot.toml"))
	open := func(text string) bool { return len(accepting.FindAllString(text, -1)) == 2 }
	n.await("two GPUs that take jobs", open)
	victim := n.job(volta, 4000, "atlas", "go on alloc 1000 sleep 600s")
	n.await("the victim at work", func(text string) bool { return strings.Contains(text, `owner="slot"} 1`) })
	n.simgpu("mps", "fault", "1")
	// Both have to have closed the GPU, or one closes it again after it has opened.
	n.await("a server in FAULT and its Xid, and a GPU closed by them", func(text string) bool {
		return strings.Contains(text, "\ngpuslot_mps_faults_total{") && strings.Contains(text, `reason="xid-31"`) && !open(text)
	})
	victim()
	n.await("two GPUs that take jobs again", open)
	n.job(hopper, 8000, "atlas", "alloc 6000 load 30 600s")
	n.job(hopper, 16000, "cms", "alloc 9000 load 45 600s")
	n.job(volta, 4000, "atlas", "alloc 5000 load 40 600s", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20G")
	return n
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// furnish builds the programs and lays out what they read.
func (n *node) furnish() {
	n.Helper()
	for _, d := range []string{"bin", "r", "s", "out", "sim"} {
		if err := os.MkdirAll(n.path(d), 0o755); err != nil {
			n.Fatal(err)
		}
	}
	if err := os.Chmod(n.dir, 0o755); err != nil {
		n.Fatal(err)
	}
	for name, pkg := range map[string]string{"gpuslotd": "cmd/gpuslotd", "gpuslot": "cmd/gpuslot", "gpuslot-condor": "cmd/gpuslot-condor", "condor_starter": "test/faults/starter"} {
		cmd := exec.Command("go", "build", "-o", n.path("bin", name), "github.com/gpuslot/gpuslot/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
		if out, err := cmd.CombinedOutput(); err != nil {
			n.Fatalf("build %s: %v\n%s", pkg, err, out)
		}
	}
	// Jobs of other accounts must reach the libraries, which root's cache hides.
	copied := exec.Command("cp", "-rL", filepath.Join(n.sim.Dir, "lib"), filepath.Join(n.sim.Dir, "bin"), n.path("sim"))
	if out, err := copied.CombinedOutput(); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{
		"online":             "0-63\n",
		"bin/control":        fmt.Sprintf("#!/bin/sh\nexport GPUSLOT_SIM_STATE=%s LD_LIBRARY_PATH=%s\nPATH=%s:$PATH\nexec nvidia-cuda-mps-control \"$@\"\n", n.sim.State, n.path("sim/lib"), n.path("sim/bin")),
		"bin/condor_version": "#!/bin/sh\necho '$CondorVersion: 25.14.1 2026-10-16 $'\n",
		"bin/condor_status":  "#!/bin/sh\nexit 0\n",
		"gpuslot.toml": fmt.Sprintf(`[sharing]
shares = 4
threads = "equal"
[health]
interval = "1s"
[budgets]
enforce = "report"
grace = "1s"
[htcondor]
manage = false
[metrics]
listen = %q
[paths]
run = %q
state = %q
control_daemon = %q
libexec = %q
`, n.metrics, n.path("r"), n.path("s"), n.path("bin/control"), n.path("bin")),
	} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o755); err != nil {
			n.Fatal(err)
		}
	}
}

func (n *node) vars() []string {
	return []string{"GPUSLOT_SIM_STATE=" + n.sim.State, "LD_LIBRARY_PATH=" + n.path("sim/lib"), "PATH=" + n.path("bin") + ":" + n.path("sim/bin") + ":" + os.Getenv("PATH")}
}

// start runs a program of the node until the test ends, and the agent's undo after it.
func (n *node) start(name string, args ...string) {
	n.Helper()
	log, err := os.Create(n.path("log"))
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), n.vars()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
		undo := exec.Command(n.path("bin/gpuslotd"), "--release", "--force", "--no-systemd", "--config", n.path("gpuslot.toml"))
		undo.Env = append(os.Environ(), n.vars()...)
		if out, err := undo.CombinedOutput(); err != nil {
			n.Errorf("release: %v\n%s", err, out)
		}
		if n.Failed() {
			text, _ := os.ReadFile(n.path("log"))
			n.Logf("gpuslotd:\n%s", text)
		}
	})
}

func (n *node) simgpu(args ...string) string {
	n.Helper()
	out, code := n.sim.Run(n.Context(), filepath.Join(n.sim.Dir, "bin/simgpu"), args...)
	if code != 0 {
		n.Fatalf("simgpu %v: %s", args, out)
	}
	return out
}

// await waits for what a scrape of the agent says.
func (n *node) await(what string, done func(text string) bool) {
	n.Helper()
	n.eventually(what, func() (string, bool) {
		text, _ := get("http://" + n.metrics + "/metrics")
		return text, done(text)
	})
}

// eventually asks until the answer is the wanted one. A failure prints the last.
func (n *node) eventually(what string, ask func() (answer string, done bool)) {
	n.Helper()
	var answer string
	if !poll.Until(patience, 100*time.Millisecond, func() (done bool) {
		answer, done = ask()
		return done
	}) {
		n.Fatalf("waited %s for: %s; seen last:\n%s", patience, what, answer)
	}
}

// job runs simjob in a slot, admitted by the hook. It ends by the returned
// function, with the test at last.
func (n *node) job(gpu int, budget int64, vo, words string, forged ...string) (end func()) {
	n.Helper()
	n.jobs++
	slot := order.Slot{
		Name: fmt.Sprintf("slot%d_%d", gpu+1, n.jobs), Job: fmt.Sprintf("%d.%d", jobCluster, n.jobs), Owner: "alice", UID: jobUID,
		GPU: n.uuids[gpu], Budget: budget, Dir: n.path("out"),
	}
	o := slot.Order(n.path("bin/gpuslot-condor"), n.path("r/agent.sock"))
	o.JobAd += fmt.Sprintf("x509UserProxyVOName = %q\n", vo)
	o.Env, o.Forged, o.Output = n.vars(), forged, n.path("out", slot.Name)
	o.Command = append([]string{n.path("sim/bin/simjob")}, strings.Fields(words)...)
	j, err := order.Start(n.path("bin/condor_starter"), slot.Name, o, os.Stderr)
	if err != nil {
		n.Fatal(err)
	}
	end = sync.OnceFunc(j.Kill)
	n.Cleanup(end)
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	if err := j.Answer(ctx); err != nil {
		n.Fatalf("%s does not run: %v", slot.Name, err)
	}
	return end
}

// gpuslot runs the operator's program.
func (n *node) gpuslot(args ...string) string {
	n.Helper()
	out, err := exec.CommandContext(n.Context(), n.path("bin/gpuslot"), append(args, "--socket", n.path("r/agent.sock"))...).CombinedOutput()
	if err != nil {
		n.Fatalf("gpuslot %v: %v\n%s", args, err, out)
	}
	return string(out)
}
