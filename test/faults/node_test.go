package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/sim"
)

// gpus is how many GPUs the node has, shares how many jobs run on each at most.
const (
	gpus   = 4
	shares = 8
)

// node is a simulated node with one real agent on it.
type node struct {
	t      *testing.T
	dir    string
	driver string
	sim    *sim.Node
	// uuids are the GPUs' by index.
	uuids []string
	// daemon is the agent's binary.
	daemon string
	agent  *exec.Cmd
	log    order.Log
	cgroup string // of this node's slots; empty where none can be made
	// interval is the pace of the agent's health rounds.
	interval string
}

// newNode makes the node and starts the agent; daemon is the gpuslotd to run,
// empty for the one with the race detector.
func newNode(t *testing.T, driver, daemon string) *node {
	t.Helper()
	programs := build(t)
	models := make([]string, gpus)
	for i := range models {
		models[i] = "V100S"
	}
	n := &node{t: t, driver: driver, interval: "1s", sim: sim.New(t, driver, models...)}
	dir, err := os.MkdirTemp("", "f") // short: pipe directories have 87 bytes
	if err != nil {
		t.Fatal(err)
	}
	n.dir = dir
	t.Cleanup(func() { os.RemoveAll(dir) })
	n.daemon = n.path("prog/gpuslotd")
	if err := n.furnish(programs); err != nil {
		t.Fatal(err)
	}
	if daemon != "" {
		n.install(daemon)
	}
	t.Cleanup(n.close)
	for _, g := range n.show().GPUs {
		n.uuids = append(n.uuids, g.UUID)
	}
	n.advertise(nil)
	n.startAgent()
	return n
}

// furnish lays out what every account must reach.
func (n *node) furnish(programs string) error {
	for _, d := range []string{"", "r", "s", "bin", "out"} {
		if err := os.MkdirAll(n.path(d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(n.dir, 0o755); err != nil {
		return err
	}
	for _, part := range []string{"lib", "bin"} {
		if err := copyTree(filepath.Join(n.sim.Dir, part), n.path("sim", part)); err != nil {
			return err
		}
	}
	if err := copyTree(programs, n.path("prog")); err != nil {
		return err
	}
	// /run is a tmpfs on a real node, too; this one can be filled.
	if err := syscall.Mount("tmpfs", n.path("r"), "tmpfs", 0, "size=4m,mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for name, text := range map[string]string{
		"bin/control":        fmt.Sprintf(controlScript, n.sim.State, n.path("sim/lib"), n.path("sim/bin"), n.path("deaf")),
		"bin/condor_version": "#!/bin/sh\necho '$CondorVersion: 25.14.1 2026-10-16 $'\n",
		"bin/condor_status":  "#!/bin/sh\nexec cat " + n.path("slots") + "\n",
	} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	n.cgroup = order.NewCgroup("gpuslot-faults-" + filepath.Base(n.dir))
	n.configure("")
	return nil
}

// controlScript gives the control daemon its simulated node, which the agent
// knows nothing of. While the file "deaf" is there, limits do not stick.
const controlScript = `#!/bin/sh
export GPUSLOT_SIM_STATE=%s LD_LIBRARY_PATH=%s
PATH=%s:$PATH
if [ $# = 0 ] && [ -e %s ]; then
	sed '/^set_default_device_pinned_mem_limit/d' | nvidia-cuda-mps-control
	exit
fi
exec nvidia-cuda-mps-control "$@"
`

// configure writes gpuslot.toml with more tables; reload makes the agent read it.
func (n *node) configure(more string) {
	text := fmt.Sprintf(`[sharing]
shares = %d
[health]
interval = %q
attach_within = "1s"
unattached = "hold"
[budgets]
grace = "1s"
[htcondor]
manage = false
[metrics]
listen = ""
[paths]
run = %q
state = %q
control_daemon = %q
libexec = %q
%s
`, shares, n.interval, n.path("r"), n.path("s"), n.path("bin/control"), n.path("prog"), more)
	if err := os.WriteFile(n.path("gpuslot.toml"), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n *node) pipe(gpu int) string { return n.path("r/mps", n.uuids[gpu]) }

func (n *node) socket() string { return n.path("r/agent.sock") }

// vars are what a process of the node has in its environment.
func (n *node) vars() []string {
	return []string{"GPUSLOT_SIM_STATE=" + n.sim.State, "LD_LIBRARY_PATH=" + n.path("sim/lib"), "PATH=" + n.path("bin") + ":" + n.path("sim/bin") + ":" + os.Getenv("PATH")}
}

func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.daemon, append([]string{"--no-systemd", "--config", n.path("gpuslot.toml")}, args...)...)
	cmd.Env = append(os.Environ(), n.vars()...)
	return cmd
}

// install puts another gpuslotd in the place of the one there, as a package does.
func (n *node) install(daemon string) {
	n.t.Helper()
	b, err := os.ReadFile(daemon)
	if err == nil {
		err = os.WriteFile(n.daemon+".new", b, 0o755)
	}
	if err == nil {
		err = os.Rename(n.daemon+".new", n.daemon)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// startAgent starts the agent with a priority: its unit has a cgroup, so that a
// busy machine leaves it a part of the processors. Here it has none.
func (n *node) startAgent() {
	n.t.Helper()
	n.agent = n.command()
	n.agent.Path, n.agent.Args = "/usr/bin/nice", append([]string{"nice", "-n", "-10"}, n.agent.Args...)
	n.agent.Stdout, n.agent.Stderr = &n.log, &n.log
	if err := n.agent.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// stopAgent ends the agent by a signal and waits for it.
func (n *node) stopAgent(s syscall.Signal) {
	_ = n.agent.Process.Signal(s)
	_ = n.agent.Wait()
}

func (n *node) reload() { _ = n.agent.Process.Signal(syscall.SIGHUP) }

// close releases the node: the honest way first, whatever is left then by pid.
func (n *node) close() {
	if n.agent != nil && n.agent.ProcessState == nil {
		n.stopAgent(syscall.SIGTERM)
	}
	out, err := n.command("--release", "--force").CombinedOutput()
	if err != nil {
		n.t.Logf("release: %v\n%s", err, out)
	}
	if text := n.log.String() + string(out); strings.Contains(text, raceFound) {
		n.t.Errorf("gpuslotd has a data race:\n%s", text[strings.Index(text, raceFound):])
	}
	for _, p := range n.processes() {
		n.t.Errorf("a process is left: %s", p)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if n.cgroup != "" {
		order.RemoveCgroup(n.cgroup)
	}
	if err := unix.Unmount(n.path("r"), unix.MNT_DETACH); err != nil {
		n.t.Errorf("unmount: %v", err)
	}
}

// raceFound is how the race detector's reports begin.
const raceFound = "WARNING: DATA RACE"

// callLimit bounds one question to the agent or the simulated node.
const callLimit = time.Minute

// gpuslot runs the operator's program.
func (n *node) gpuslot(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, n.path("prog/gpuslot"), append(args, "--socket", n.socket())...).CombinedOutput()
	return string(out), err
}

// status is what the operator's program prints, without the program.
func (n *node) status() (*api.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	reply, err := api.Call(ctx, n.socket(), api.Request{Version: api.Version, Op: api.OpStatus})
	if err == nil && reply.Status == nil {
		err = errors.New("no status in the reply")
	}
	return reply.Status, err
}

// simProcess is one of the simulated node's.
type simProcess struct {
	PID    int    `json:"pid"`
	Kind   string `json:"kind"`
	UID    int    `json:"uid"`
	GPU    int    `json:"gpu"`
	Limit  int64  `json:"limit_mib"`
	Memory int64  `json:"memory_mib"`
	Load   int    `json:"load"`
}

// shown is what simgpu show --json says.
type shown struct {
	GPUs []struct {
		UUID string `json:"uuid"`
		Lost bool   `json:"lost"`
		XID  int    `json:"last_xid"`
	} `json:"gpus"`
	Processes []simProcess `json:"processes"`
	Servers   []struct {
		PID    int    `json:"pid"`
		Daemon int    `json:"daemon"`
		UID    int    `json:"uid"`
		State  string `json:"state"`
	} `json:"mps_servers"`
}

func (n *node) show() shown {
	n.t.Helper()
	var s shown
	if err := json.Unmarshal([]byte(n.simgpu("show", "--json")), &s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// simgpu troubles the simulated node.
func (n *node) simgpu(args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.path("sim/bin/simgpu"), args...)
	cmd.Env = append(os.Environ(), n.vars()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("simgpu %v: %v: %s", args, err, out)
	}
	return string(out)
}

// control gives a GPU's control daemon commands, as an operator would, or a
// job with a uid of its own.
func (n *node) control(gpu int, uid uint32, lines ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.path("sim/bin/nvidia-cuda-mps-control"))
	cmd.Env = append(n.vars(), "CUDA_MPS_PIPE_DIRECTORY="+n.pipe(gpu))
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
