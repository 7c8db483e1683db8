package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/poll"
)

// TestMain lets the test binary be gpuslotd, so that a test can kill it.
func TestMain(m *testing.M) {
	if os.Getenv("GPUSLOTD_TEST_MAIN") != "" {
		main()
		return
	}
	alone.Enter() // the agent finds jobs in /proc
	os.Exit(m.Run())
}

// node is a directory with a configuration and a recorded inventory, on which
// real gpuslotd processes run real control daemons as plain processes.
type node struct {
	t    *testing.T
	dir  string
	port string
	log  *os.File
}

func uuid(n int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n)) }

func newNode(t *testing.T, branch string) *node {
	t.Helper()
	program := driver.Control(driver.Dir(t, branch))
	dir, err := os.MkdirTemp("", "g") // a pipe directory may have 87 bytes
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, port: freePort(t), log: log}
	t.Cleanup(func() {
		if out, err := n.command("--release", "--force").CombinedOutput(); err != nil {
			t.Errorf("release: %v\n%s", err, out)
		}
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("log of gpuslotd (%v):\n%s", err, text)
		}
		os.RemoveAll(dir)
	})
	n.configure(fmt.Sprintf("[health]\ninterval = \"1s\"\n[paths]\nrun = \"%s/r\"\nstate = \"%s/s\"\ncontrol_daemon = %q\n[metrics]\nlisten = \"127.0.0.1:%s\"\n", dir, dir, program, n.port))
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: branch + ".01", CUDA: "12.4",
		Host: gpu.Host{Name: "wn1.example.org", CPUs: 16, Memory: 131072}, GPUs: []gpu.GPU{}}
	for i := range 3 {
		inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Name: "Tesla V100S-PCIE-32GB",
			PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", 0x10+i)), Memory: 32768, Capability: gpu.Volta, ComputeMode: gpu.ComputeModeDefault})
	}
	text, err := inv.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "inventory.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return n
}

// freePort is a port that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (n *node) configure(text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "gpuslot.toml"), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) command(args ...string) *exec.Cmd {
	args = append([]string{"--config", filepath.Join(n.dir, "gpuslot.toml"), "--inventory", filepath.Join(n.dir, "inventory.json"), "--no-systemd"}, args...)
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "GPUSLOTD_TEST_MAIN=1")
	return c
}

// start runs gpuslotd until stop or until the test ends.
func (n *node) start() *exec.Cmd {
	n.t.Helper()
	c := n.command()
	c.Stderr = n.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.end(c, syscall.SIGTERM) })
	return c
}

func (n *node) end(c *exec.Cmd, s syscall.Signal) error {
	if c.ProcessState != nil {
		return nil
	}
	_ = c.Process.Signal(s)
	return c.Wait()
}

func (n *node) status() (*api.Status, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	r, err := api.Call(ctx, filepath.Join(n.dir, "r/agent.sock"), api.Request{Op: api.OpStatus})
	return r.Status, err
}

// await polls the status until it is as it should be.
func (n *node) await(what string, is func(*api.Status) bool) *api.Status {
	n.t.Helper()
	var last *api.Status
	if !poll.Until(5*time.Minute, 20*time.Millisecond, func() bool {
		s, err := n.status()
		last = s
		return err == nil && is(s)
	}) {
		n.t.Fatalf("waited in vain for %s; status: %+v", what, last)
	}
	return last
}

func accepts(s *api.Status) bool {
	for _, g := range s.GPUs {
		if !g.Accept {
			return false
		}
	}
	return len(s.GPUs) == 3
}

func pids(s *api.Status) [3]int {
	return [3]int{s.GPUs[0].DaemonPID, s.GPUs[1].DaemonPID, s.GPUs[2].DaemonPID}
}

// TestLife is one long story with real control daemons, in which nothing may
// be lost: killed agents, killed and wedged daemons, broken configurations.
func TestLife(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) { life(t, newNode(t, branch)) })
	}
}

func life(t *testing.T, n *node) {
	agent := n.start()
	before := pids(n.await("all GPUs to accept", accepts))

	// Killed: the control daemons live on, and the next agent adopts them.
	if err := n.end(agent, syscall.SIGKILL); err == nil {
		t.Fatal("killed without a trace")
	}
	agent = n.start()
	if after := pids(n.await("the next agent", accepts)); after != before {
		t.Fatalf("control daemons %v were not adopted: %v", before, after)
	}

	// A second agent leaves the first one alone.
	if out, err := n.command().CombinedOutput(); err == nil || !strings.Contains(string(out), "another gpuslotd uses") {
		t.Errorf("a second agent: %v\n%s", err, out)
	}

	// A daemon killed between two commands is started again, with its limits.
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.await("the killed control daemon to run again", func(s *api.Status) bool {
		return accepts(s) && s.GPUs[0].DaemonPID != before[0] && s.GPUs[0].DaemonPID != 0
	})

	// A stopped one closes its GPU at once, and alone, and is never killed.
	if err := syscall.Kill(before[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.await("GPU 1 to close alone", func(s *api.Status) bool {
		return !s.GPUs[1].Accept && strings.Contains(s.GPUs[1].Reason, "suspended") && s.GPUs[0].Accept && s.GPUs[2].Accept
	})
	if err := syscall.Kill(before[1], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if s := n.await("the stopped control daemon to answer", accepts); s.GPUs[1].DaemonPID != before[1] {
		t.Error("a control daemon that was only suspended was replaced")
	}

	// A broken configuration is rejected, the plan in force stays.
	good, err := os.ReadFile(filepath.Join(n.dir, "gpuslot.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n.configure("[sharing]\nsharez = 4\n")
	if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if s := n.await("the rejection", func(s *api.Status) bool { return s.ConfigError != "" }); !accepts(s) || !strings.Contains(s.ConfigError, "sharez") {
		t.Errorf("with a broken configuration: %+v", s)
	}
	if !strings.Contains(n.metrics(), "gpuslot_config_last_reload_successful 0\n") {
		t.Error("the metric does not tell of the rejection")
	}
	n.configure(string(good) + "[sharing]\nshares = 3\n")
	if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	n.await("the new shares", func(s *api.Status) bool { return accepts(s) && s.ConfigError == "" && s.GPUs[0].Shares == 3 })

	// The end of the agent is not the end of the control daemons.
	if err := n.end(agent, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if err := syscall.Kill(before[2], 0); err != nil {
		t.Errorf("control daemon %d: %v", before[2], err)
	}

	// Released: nothing is left.
	if out, err := n.command("--release").CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", before[2])); err == nil && !strings.Contains(string(state), ") Z ") {
		t.Error("a control daemon is left")
	}
	for _, f := range []string{"r/plan.json", "r/condor/inventory.ad", "r/condor/execution-point.conf"} {
		if _, err := os.Stat(filepath.Join(n.dir, f)); err == nil {
			t.Errorf("%s is left", f)
		}
	}
}

func (n *node) metrics() string {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://127.0.0.1:"+n.port+"/metrics", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// TestBadCommandLines: each ends with a sentence, and a wrong command line with 2.
func TestBadCommandLines(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		args []string
		says string
		code int
	}{
		"no configuration": {[]string{"--config", dir + "/none.toml", "--no-systemd"}, "an empty file there means all defaults", 1},
		"unknown flag":     {[]string{"--sharez"}, "unknown flag", 2},
		"argument":         {[]string{"start"}, "unknown command", 2},
		"log level":        {[]string{"--log-level", "loud"}, "none of debug, info, warn, error", 2},
		"force alone":      {[]string{"--force"}, "goes with --release", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := exec.Command(os.Args[0], tt.args...)
			c.Env = append(os.Environ(), "GPUSLOTD_TEST_MAIN=1")
			out, err := c.CombinedOutput()
			if c.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.says) {
				t.Errorf("%v, want exit code %d\n%s", err, tt.code, out)
			}
		})
	}
}
