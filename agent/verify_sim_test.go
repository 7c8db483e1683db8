//go:build cgo

package agent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/poll"
	"github.com/gpuslot/gpuslot/test/sim"
)

// clientMark makes this test binary a verification's client.
const clientMark = "GPUSLOT_TEST_CUDA_CLIENT"

// TestCUDAClient is the client of the tests below.
func TestCUDAClient(t *testing.T) {
	if os.Getenv(clientMark) == "" {
		t.Skip("run by the tests on the simulated node")
	}
	os.Exit(cuda.Main(flag.Args(), os.Stdin, os.Stdout))
}

// simulated is an agent over a simulated GPU, with its control daemon, server
// and libcuda, real pipe directories and real processes.
type simulated struct {
	*Agent
	t    *testing.T
	node *sim.Node
	// programs is where every account reaches them.
	dir, programs string
	gpu           gpu.UUID
	cfg           config.Config
	inv           gpu.Inventory
	// environment changes what a client gets.
	environment func([]string) []string
}

func simulatedAgent(t *testing.T, text string) *simulated {
	t.Helper()
	return simulatedNode(t, "550.163.01", "V100S", inventoryOf(1), text)
}

func simulatedNode(t *testing.T, driver, model string, inv gpu.Inventory, text string) *simulated {
	t.Helper()
	s := &simulated{t: t, node: sim.New(t, driver, model), inv: inv, environment: func(env []string) []string { return env }}
	var err error
	if s.dir, err = os.MkdirTemp("", "v"); err != nil { // a pipe directory may have 87 bytes
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	s.programs = filepath.Join(s.dir, "p")
	for _, err := range []error{os.Chmod(s.dir, 0o755), os.Mkdir(s.programs, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lib/libcuda.so.1", "bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-server", "bin/simjob"} {
		b, err := os.ReadFile(filepath.Join(s.node.Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.programs, filepath.Base(name)), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// A control daemon is started with an environment of gpuslot's own.
	control := fmt.Sprintf("#!/bin/sh\nGPUSLOT_SIM_STATE=%s exec %s/nvidia-cuda-mps-control \"$@\"\n", s.node.State, s.programs)
	if err := os.WriteFile(filepath.Join(s.dir, "control"), []byte(control), 0o755); err != nil {
		t.Fatal(err)
	}
	var shown struct {
		GPUs []struct{ UUID gpu.UUID } `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(s.simgpu("show", "--json")), &shown); err != nil || len(shown.GPUs) != 1 {
		t.Fatalf("%v: %+v", err, shown)
	}
	s.gpu = shown.GPUs[0].UUID
	s.start(text)
	return s
}

func (s *simulated) start(text string) {
	s.t.Helper()
	file, control := filepath.Join(s.dir, "gpuslot.toml"), filepath.Join(s.dir, "control")
	text = fmt.Sprintf("[paths]\nrun = %q\nstate = %q\ncontrol_daemon = %q\n[metrics]\nlisten = \"\"\n%s", s.dir+"/r", s.dir+"/s", control, text)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	hw := &fakeHardware{inv: s.inv}
	hw.inv.GPUs[0].UUID = s.gpu
	var err error
	if s.cfg, err = config.Load(file); err != nil {
		s.t.Fatal(err)
	}
	s.Agent, err = newAgent(Options{ConfigFile: file, Build: metrics.Build{Version: "test"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Hardware: hw, Startd: &fakeStartd{version: condor.Version{Major: 25, Minor: 14, Patch: 1}}, CUDA: s.client,
		Runner: func(p config.Paths) (mps.Runner, error) {
			return mps.Processes{Root: p.PipeRoot(), Program: control, Logs: filepath.Join(p.State, "log"), ServerPath: s.programs,
				FlagsOf: func(u gpu.UUID) []string { return daemons.Flags(p, u) }}, nil
		}}, s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.verifier.Hears = 0 // there is no startd
	if err := s.recall(s.t.Context(), s.cfg.Paths); err != nil {
		s.t.Fatal(err)
	}
	s.apply(s.t.Context(), true)
	s.t.Cleanup(func() {
		if err := s.keeper.StopAll(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	if v := s.view.Load(); v.daemons[s.gpu].Err != nil {
		s.t.Fatal(v.daemons[s.gpu].Err)
	}
}

// client starts this binary with a job's environment, and what it takes to live
// on the simulated node.
func (s *simulated) client(ctx context.Context, o cuda.Order) (verify.Client, error) {
	o.Environment = append(s.environment(slices.Clone(o.Environment)), clientMark+"=1", "GPUSLOT_SIM_STATE="+s.node.State, "LD_LIBRARY_PATH="+s.programs)
	return cuda.Start(ctx, "/proc/self/exe", []string{"-test.run=^TestCUDAClient$"}, o)
}

func (s *simulated) simgpu(args ...string) string {
	s.t.Helper()
	out, code := s.node.Run(s.t.Context(), filepath.Join(s.node.Dir, "bin/simgpu"), args...)
	if code != 0 {
		s.t.Fatalf("simgpu %v: %s", args, out)
	}
	return out
}

// without leaves a variable out.
func without(name string) func([]string) []string {
	return func(env []string) []string {
		return slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
}

// stray is a client of another account that no admission let in.
func (s *simulated) stray(uid uint32) {
	s.t.Helper()
	pipe := filepath.Join(s.cfg.Paths.PipeRoot(), string(s.gpu))
	if err := mps.Admit(pipe, uid); err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(filepath.Join(s.programs, "simjob"), "alloc", "100", "until", "eof")
	c.Dir, c.Env = "/", []string{"GPUSLOT_SIM_STATE=" + s.node.State, "LD_LIBRARY_PATH=" + s.programs, "CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_VISIBLE_DEVICES=" + string(s.gpu)}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	var servers []mps.Server
	if !poll.Until(5*time.Minute, 5*time.Millisecond, func() bool {
		servers, err = s.clients.Servers(s.t.Context(), s.gpu)
		return err == nil && len(servers) == 1 && slices.Contains(servers[0].Clients, c.Process.Pid)
	}) {
		s.t.Fatalf("the stray client does not attach: %+v, %v", servers, err)
	}
}

// slow is how long a step may take that hangs in these tests. No other step does,
// on a machine with other work either.
const slow = 5 * time.Second

// TestVerifySimulated: the whole way, with processes that attach and allocate.
func TestVerifySimulated(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*simulated)
		ok   bool
		says string
		skip string
	}{
		{"as promised", func(*simulated) {}, true, "an MPS client; of its 4608 MiB it got 1152 MiB, and for 4609 MiB CUDA_ERROR_OUT_OF_MEMORY", ""},
		{"a limit that does not hold", func(s *simulated) { s.environment = without("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") }, false, "4609 MiB were given to a client whose limit is 4608 MiB", ""},
		{"beside MPS", func(s *simulated) { s.environment = without("CUDA_MPS_PIPE_DIRECTORY") }, false, "CUDA runs on it beside its control daemon", ""},
		{"no daemon", func(s *simulated) {
			checked := s.view.Load().daemons[s.gpu].Checked
			servers, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", checked.PID, checked.PID))
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { // they outlive it
				for _, pid := range strings.Fields(string(servers)) {
					n, _ := strconv.Atoi(pid)
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			})
			if err := syscall.Kill(checked.PID, syscall.SIGKILL); err != nil {
				s.t.Fatal(err)
			}
			for s.daemons.QuickCheck(s.gpu, checked).Err == nil { // until the kernel is done with it
				time.Sleep(time.Millisecond)
			}
		}, false, "", "is closed: its control daemon"},
		{"another account's server", func(s *simulated) {
			if os.Geteuid() != 0 {
				s.t.Skip("another account needs root")
			}
			s.verifier.Patience = slow
			s.stray(1234)
		}, false, "cuInit did not return within 5s, because MPS serves uid 1234", ""},
		{"a driver that hangs", func(s *simulated) { s.verifier.Patience = slow; s.simgpu("hang", "any", "cuInit") }, false, "cuInit did not return within 5s: see its log", ""},
		{"a hang after it attached", func(s *simulated) { s.verifier.Patience = slow; s.simgpu("hang", "any", "cuMemAlloc_v2") }, false, "cuMemAlloc below the limit did not return within 5s", ""},
		{"a lost GPU", func(s *simulated) { s.simgpu("lose", "0") }, false, "CUDA_ERROR_MPS_CONNECTION_FAILED: its MPS server does not start", ""},
		{"no library", func(s *simulated) { _ = os.Remove(filepath.Join(s.programs, "libcuda.so.1")) }, false, "install the driver's CUDA library", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := simulatedAgent(t, "")
			tt.do(s)
			begin := time.Now()
			found, err := s.answers.verify(t.Context(), "0")
			if err != nil || len(found) != 1 {
				t.Fatalf("%+v, %v", found, err)
			}
			v := found[0]
			t.Logf("%s: %s%s", time.Since(begin).Round(time.Millisecond), v.Text, v.Skipped)
			if v.OK != tt.ok || !strings.Contains(v.Text, tt.says) || !strings.Contains(v.Skipped, tt.skip) || (tt.skip == "") != (v.Skipped == "") {
				t.Errorf("%+v", v)
			}
			if all := s.jobs.Running(); len(all) != 0 {
				t.Errorf("booked: %+v", all)
			}
			uids, err := mps.Admitted(filepath.Join(s.cfg.Paths.PipeRoot(), string(s.gpu)))
			if err != nil || slices.Contains(uids, 65534) {
				t.Errorf("admitted: %v, %v", uids, err)
			}
			if shown := s.simgpu("show", "--json"); strings.Contains(shown, `"uid": 65534, "kind": "MPS client"`) {
				t.Errorf("a client is left: %s", shown)
			}
		})
	}
}
