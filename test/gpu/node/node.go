// Package node tries gpuslot as a whole on a GPU without HTCondor: the real
// gpuslotd, hook and wrapper, with jobs that count themselves what they do, each
// below test/faults' stand-in for condor_starter. It changes no setting of the
// GPU. Start at Trials.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/faults/order"
)

// shares is how many jobs the GPU takes.
const shares = 4

// passed are variables without which a driver in an unusual place, or a simulated
// one, is not found; and first's mark, by which it ends what a part left.
var passed = []string{"LD_LIBRARY_PATH", "GPUSLOT_SIM_STATE", "GPUSLOT_SIM_MPS_START_MS", "GPUSLOT_SIM_CONTEXT_MS", "GPUSLOT_FIRST"}

// Node is one machine with a running gpuslotd.
type Node struct {
	// Programs is the folder that the programs are copied from.
	Programs string
	GPU      gpu.GPU
	// Others are the machine's other GPUs: they are left alone.
	Others []gpu.GPU
	// Measure is how long usage and cost are measured.
	Measure time.Duration

	dir, cgroup string
	agent       *exec.Cmd
	log         order.Log
	jobs        []*job
	number      int
}

// Log is what the agents said.
func (n *Node) Log() string { return n.log.String() }

func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}
func (n *Node) socket() string { return n.path("r/agent.sock") }

// Start makes the node's directory, which all accounts reach, and starts the
// agent in it.
func (n *Node) Start(ctx context.Context) (err error) {
	if n.dir, err = os.MkdirTemp("/tmp", "gn"); err != nil { // pipe directories have 87 bytes
		return err
	}
	if err := n.furnish(); err != nil {
		return err
	}
	n.advertise(nil)
	n.startAgent()
	if n.agent.Process == nil {
		return errors.New("gpuslotd does not start: " + n.Log())
	}
	if err := n.await(ctx, time.Minute, func(g api.StatusGPU) bool { return g.Accept }); err != nil {
		return fmt.Errorf("the GPU accepts no jobs: %w\n%s", err, n.Log())
	}
	return nil
}

func (n *Node) furnish() error {
	if err := os.Chmod(n.dir, 0o755); err != nil {
		return err
	}
	for _, d := range []string{"r", "s", "bin", "out", "prog"} {
		if err := os.Mkdir(n.path(d), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"gpuslotd", "gpuslot", "gpuslot-condor", "condor_starter", "gpujob", "gpusee"} {
		b, err := os.ReadFile(filepath.Join(n.Programs, name))
		if err == nil {
			err = os.WriteFile(n.path("prog", name), b, 0o755)
		}
		if err != nil {
			return err
		}
	}
	control, err := exec.LookPath("nvidia-cuda-mps-control")
	if err != nil {
		return err
	}
	// The agent gives control daemons an environment of its own; a driver in an unusual place needs more.
	script := "#!/bin/sh\n"
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			script += fmt.Sprintf("export %s='%s'\n", name, value)
		}
	}
	script += fmt.Sprintf("PATH='%s':$PATH exec '%s' \"$@\"\n", os.Getenv("PATH"), control)
	for name, text := range map[string]string{
		"bin/control":        script,
		"bin/condor_version": "#!/bin/sh\necho '$CondorVersion: 25.14.1 2026-10-16 $'\n",
		"bin/condor_status":  "#!/bin/sh\nexec cat " + n.path("slots") + "\n",
	} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	n.cgroup = n.slotCgroup()
	return os.WriteFile(n.path("gpuslot.toml"), []byte(n.config()), 0o644)
}

// config leaves the compute mode and all other GPUs as they are.
func (n *Node) config() string {
	text := fmt.Sprintf(`[sharing]
shares = %d
compute_mode = "keep"
[health]
interval = "1s"
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
`, shares, n.path("r"), n.path("s"), n.path("bin/control"), n.path("prog"))
	for _, g := range n.Others {
		text += fmt.Sprintf("[gpu.%q]\nmode = \"whole\"\n", g.UUID)
	}
	return text
}

func (n *Node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.path("prog/gpuslotd"), append([]string{"--no-systemd", "--config", n.path("gpuslot.toml")}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+n.path("bin")+":"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	return cmd
}

func (n *Node) startAgent() {
	n.agent = n.command()
	n.agent.Stdout, n.agent.Stderr = &n.log, &n.log
	if err := n.agent.Start(); err != nil {
		fmt.Fprintln(&n.log, err)
	}
}

// killAgent ends it at once.
func (n *Node) killAgent() {
	_ = n.agent.Process.Kill()
	_ = n.agent.Wait()
}

// Stop ends the jobs and the agent and takes everything back.
func (n *Node) Stop() error {
	n.endJobs()
	if n.agent != nil && n.agent.Process != nil && n.agent.ProcessState == nil {
		_ = n.agent.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = n.agent.Process.Kill() })
		_ = n.agent.Wait()
		late.Stop()
	}
	var errs []error
	if n.agent != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		release := n.command("--release", "--force")
		stop := context.AfterFunc(ctx, func() { _ = release.Process.Kill() })
		defer stop()
		if out, err := release.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("release: %w: %s", err, out))
		}
	}
	if n.cgroup != "" {
		order.RemoveCgroup(n.cgroup)
	}
	return errors.Join(append(errs, order.RemoveDir(n.dir))...)
}

// status is the GPU as the agent sees it.
func (n *Node) status(ctx context.Context) (api.StatusGPU, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reply, err := api.Call(ctx, n.socket(), api.Request{Version: api.Version, Op: api.OpStatus})
	if err != nil {
		return api.StatusGPU{}, err
	}
	if reply.Status != nil {
		for _, g := range reply.Status.GPUs {
			if g.UUID == string(n.GPU.UUID) {
				return g, nil
			}
		}
	}
	return api.StatusGPU{}, errors.New("the agent does not know the GPU")
}

// await waits until the GPU is so, some time.
func (n *Node) await(ctx context.Context, most time.Duration, is func(api.StatusGPU) bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var last error
	for {
		g, err := n.status(ctx)
		if err == nil && is(g) {
			return nil
		}
		last = err
		if err == nil {
			last = fmt.Errorf("accepts jobs: %v, %s", g.Accept, g.Reason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not come to that in time: %w", last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// slotCgroup makes the node's part of the unified hierarchy, where it can. Where
// it is not mounted, as on machines without systemd, the node does.
func (n *Node) slotCgroup() string {
	name := "gpuslot-gpu-" + filepath.Base(n.dir)
	if dir := order.NewCgroup(name); dir != "" {
		return dir
	}
	own := order.OwnCgroups(n.dir)
	if os.Mkdir(own, 0o755) != nil || syscall.Mount("none", own, "cgroup2", 0, "") != nil {
		return ""
	}
	return order.NewCgroup(name)
}
