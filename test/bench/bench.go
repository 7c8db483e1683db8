package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/bench/order"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/startd"
)

// bench is the place where everything runs: a directory with the programs, and
// agents without systemd that run real control daemons.
type bench struct {
	dir     string
	control string
	inv     gpu.Inventory
	main    *agent
	agents  []*agent
}

// agent is one running gpuslotd.
type agent struct {
	dir, socket string
	cmd         *exec.Cmd
	log         *os.File
	// base are the arguments and env the variables that it shares with its release.
	base, env []string
	// control is its control daemon; within stands before the program's name.
	control string
	within  []string
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) setUp(ctx context.Context) (err error) {
	progress("build the programs, fetch the control daemon")
	// Short: pipe directories have 87 bytes.
	if b.dir, err = os.MkdirTemp("", "gb"); err != nil {
		return err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	for name, pkg := range map[string]string{"noop": "./test/bench/noop", "condor_starter": "./test/bench/starter", "gpuslot-condor": "./cmd/gpuslot-condor"} {
		if err := build1(ctx, b.path(name), pkg, "CGO_ENABLED=0"); err != nil {
			return err
		}
	}
	cc := exec.CommandContext(ctx, "gcc", "-Os", "-static", "-s", "-o", b.path("gpuslot-start"),
		"cmd/gpuslot-start/main.c", "cmd/gpuslot-start/agent.c", "cmd/gpuslot-start/prepare.c", "cmd/gpuslot-start/supervise.c")
	if text, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, text)
	}
	if err := build1(ctx, b.path("gpuslotd"), "./cmd/gpuslotd"); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("wrapper.sh"), []byte(wrapperScript), 0o755); err != nil {
		return err
	}
	dir, err := driver.Fetch(ctx, "550")
	if err != nil {
		return err
	}
	b.control = driver.Control(dir)
	if b.inv, err = gpu.ReadInventory("docs/examples/v100s-8.json"); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("machine.ad"), []byte(b.machineAd()), 0o644); err != nil {
		return err
	}
	b.main, err = b.agent(ctx, "main", "[sharing]\nshares = 8\n", b.inv) // the paper's eight
	return err
}

func build1(ctx context.Context, out, pkg string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// agent starts gpuslotd on an inventory and waits until every GPU accepts jobs.
func (b *bench) agent(ctx context.Context, name, config string, inv gpu.Inventory) (*agent, error) {
	a := &agent{dir: b.path(name), control: b.control}
	a.socket = filepath.Join(a.dir, "agent.sock")
	text, err := inv.Encode()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, err
	}
	recorded := filepath.Join(a.dir, "inventory.json")
	if err := os.WriteFile(recorded, text, 0o644); err != nil {
		return nil, err
	}
	a.base = []string{"--inventory", recorded}
	return a, b.startAgent(ctx, a, config+"\n[metrics]\nlisten = \"\"\n", len(inv.GPUs))
}

// startAgent starts it in its directory; base and env say where its GPUs are.
func (b *bench) startAgent(ctx context.Context, a *agent, config string, gpus int) (err error) {
	if err := os.MkdirAll(filepath.Join(a.dir, "state"), 0o755); err != nil {
		return err
	}
	file := filepath.Join(a.dir, "gpuslot.toml")
	paths := fmt.Sprintf("\n[paths]\nrun = %q\nstate = %q\ncontrol_daemon = %q\nlibexec = %q\n", a.dir, filepath.Join(a.dir, "state"), a.control, filepath.Dir(b.path("gpuslot-condor")))
	if err := os.WriteFile(file, []byte(config+paths), 0o644); err != nil {
		return err
	}
	if a.log, err = os.Create(filepath.Join(a.dir, "log")); err != nil {
		return err
	}
	a.base = append([]string{"--no-systemd", "--config", file}, a.base...)
	args := slices.Concat(a.within, []string{b.path("gpuslotd")}, a.base, []string{"--socket", a.socket})
	a.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	a.cmd.Env = append(os.Environ(), a.env...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if err := a.cmd.Start(); err != nil {
		return err
	}
	b.agents = append(b.agents, a)
	return b.waitAccepting(ctx, a, gpus)
}

func (b *bench) waitAccepting(ctx context.Context, a *agent, gpus int) error {
	var out []byte
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, _ = exec.CommandContext(ctx, b.path("gpuslot-condor"), "monitor", "--socket", a.socket).Output()
		if bytes.Count(out, []byte("GPUAccept = true")) == gpus {
			return nil
		}
	}
	log, _ := os.ReadFile(a.log.Name())
	return fmt.Errorf("the agent does not accept jobs on %d GPUs; the monitor says:\n%s\nits log:\n%s", gpus, out, log)
}

func (a *agent) residentMiB() (float64, error) {
	p, err := procfs.NewProc(a.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	s, err := p.NewStatus()
	return float64(s.VmRSS) / gpu.BytesPerMiB, err
}

// tearDown ends agents and control daemons and removes the directory.
func (b *bench) tearDown() error {
	if b.dir == "" {
		return nil
	}
	var errs []error
	for _, a := range b.agents {
		if err := a.cmd.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		_ = a.cmd.Wait() // its exit status is not what is measured
		release := exec.Command(b.path("gpuslotd"), append([]string{"--release", "--force"}, a.base...)...)
		release.Env = append(os.Environ(), a.env...)
		if out, err := release.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("release: %w\n%s", err, out))
		}
		a.log.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// starter runs an order under a process that looks like slot1_<n>'s starter.
func (b *bench) starter(ctx context.Context, n int, o order.Order) (map[string][]time.Duration, error) {
	in, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd, err := startd.Starter(ctx, b.path("condor_starter"), "-f", "-local-name", "slot_type_101", "-a", fmt.Sprintf("slot1_%d", n), "bench")
	if err != nil {
		return nil, err
	}
	cmd.Stdin = bytes.NewReader(in)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var report order.Report
	err = json.Unmarshal(out, &report)
	for name, used := range report.CPU {
		report.Times[name+cpuOf] = used
	}
	return report.Times, err
}

// cpuOf ends the names of a program's CPU times, beside those of its durations.
const cpuOf = ", CPU"

// atOnce runs a program once below each of n starters, all released together.
func (b *bench) atOnce(ctx context.Context, n int, p order.Program) ([]time.Duration, error) {
	gate := b.path("gate")
	if err := os.RemoveAll(gate); err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		all  []time.Duration
		errs []error
		wg   sync.WaitGroup
	)
	for i := range n {
		p := p
		if p.Name == "prepare" {
			p = b.prepareOn(i)
		}
		wg.Go(func() {
			t, err := b.starter(ctx, i+1, order.Order{Rounds: 1, Programs: []order.Program{p}, Gate: gate})
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, t[p.Name]...), append(errs, err)
		})
	}
	time.Sleep(300 * time.Millisecond) // all starters are at the gate; an early one only lowers the load
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		return nil, err
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

const slice = 2048 // MiB; 8 of them fit a GPU of the example node

func (b *bench) prepare() order.Program { return b.prepareOn(0) }

// prepareOn is the hook of the i-th job, eight to a GPU.
func (b *bench) prepareOn(i int) order.Program {
	return b.prepareFor(b.main.socket, i, b.inv.GPUs[i/8%len(b.inv.GPUs)].UUID)
}

func (b *bench) prepareFor(socket string, i int, u gpu.UUID) order.Program {
	ad := fmt.Sprintf("ClusterId = 1\nProcId = %d\nOwner = \"root\"\nRequestGPUs = 1\nRequestVRAM = %d\nGpusProvisioned = 1\nVramProvisioned = %d\nEnvironment = \"A=1 B=2\"\n", i, slice, slice)
	return order.Program{Name: "prepare", Args: []string{b.path("gpuslot-start"), "prepare", "-socket", socket}, Stdin: ad,
		Env:  []string{"PATH=/usr/bin:/bin", "_CONDOR_AssignedGPUs=" + string(u), "_CONDOR_MACHINE_AD=" + b.path("machine.ad")},
		Want: fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", slice)}
}

// supervise is the start of a no-op through it, where the agent has nothing to put in
// force and where it is asked to.
func (b *bench) supervise() (plain, asking order.Program, err error) {
	through := func(name, socket string) order.Program {
		return order.Program{Name: name, Args: []string{b.path("gpuslot-start"), "supervise", "-socket", socket, "--", b.path("noop")},
			Env: []string{"PATH=/usr/bin:/bin"}}
	}
	dir := b.path("asking")
	if err = os.MkdirAll(filepath.Join(dir, "condor"), 0o755); err == nil {
		err = errors.Join(os.Symlink(b.main.socket, filepath.Join(dir, "agent.sock")), os.Symlink(api.StartRequired, filepath.Join(dir, "condor", "start")))
	}
	return through("supervise", b.main.socket), through("asking", filepath.Join(dir, "agent.sock")), err
}

func (b *bench) machineAd() string {
	return fmt.Sprintf("AssignedGPUs = \"%s\"\nCpus = 1\nGPUs = 1\nMemory = 128\nVRAM = %d\nRequestGPUs = 1\nRequestVRAM = %d\nVramProvisioned = %d\n",
		b.inv.GPUs[0].UUID, slice, slice, slice)
}

// bashWrapper is what a site can write by hand: it forks nothing, which makes it some four
// times faster than one with grep and cut.
func (b *bench) bashWrapper() order.Program {
	return order.Program{Name: "bash", Args: []string{b.path("wrapper.sh"), b.path("noop")},
		Env: []string{"PATH=/usr/bin:/bin", "_CONDOR_MACHINE_AD=" + b.path("machine.ad")}}
}

const wrapperScript = `#!/bin/bash
while read -r name _ value; do
	case $name in
	AssignedGPUs) gpu=${value//\"/} ;;
	VRAM) vram=$value ;;
	esac
done <"$_CONDOR_MACHINE_AD"
export CUDA_VISIBLE_DEVICES=$gpu
export CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/$gpu
export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=${vram}M
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100
exec "$@"
`
