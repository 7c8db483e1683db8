package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/poll"
	"github.com/gpuslot/gpuslot/test/sim"
)

// daemonAgent is an agent over a real or simulated control daemon of one GPU.
// Program is a shell command that becomes the daemon and its command line, Server
// the program of its servers.
func daemonAgent(t *testing.T, u gpu.UUID, program, server string) *testAgent {
	t.Helper()
	ta := bareTestAgent(t, 1, "")
	ta.hw.inv.GPUs[0].UUID = u
	if err := os.Chmod(ta.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(ta.dir, "bin")
	control := filepath.Join(bin, mps.Program)
	b, err := os.ReadFile(server)
	for _, do := range []func() error{
		func() error { return err },
		func() error { return os.Mkdir(bin, 0o755) },
		func() error { return os.WriteFile(filepath.Join(bin, "nvidia-cuda-mps-server"), b, 0o755) },
		func() error { return os.WriteFile(control, []byte("#!/bin/sh\n"+program+" \"$@\"\n"), 0o755) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	ta.writeConfig("")
	file := filepath.Join(ta.dir, "gpuslot.toml")
	text := strings.Replace(ta.read(file), "[paths]\n", fmt.Sprintf("[paths]\ncontrol_daemon = %q\n", control), 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o := ta.options()
	o.daemons, o.clients, o.pipes, o.proc = nil, nil, nil, ""
	o.Runner = func(p config.Paths) (mps.Runner, error) {
		return mps.Processes{Root: p.PipeRoot(), Program: control, Logs: filepath.Join(p.State, "log"), ServerPath: bin}, nil
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if ta.Agent, err = newAgent(o, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ta.keeper.StopAll(context.Background()) })
	ta.Agent.apply(t.Context(), true)
	return ta
}

// until applies at the loop's pace until the status of the server says a text.
func (ta *testAgent) until(text string) {
	ta.t.Helper()
	var got string
	if !poll.Until(5*time.Minute, 50*time.Millisecond, func() bool {
		ta.apply(false)
		got = ta.serverText()
		return strings.Contains(got, text)
	}) {
		ta.t.Fatalf("status says %q, want %q", got, text)
	}
}

// TestRealServerWithoutGPU: the trial of NVIDIA's own server on a machine
// without a GPU, by driver.
func TestRealServerWithoutGPU(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			dir := driver.Dir(t, branch)
			ta := daemonAgent(t, uuid(0), "LD_LIBRARY_PATH="+driver.Libraries(dir)+" exec "+driver.Control(dir), driver.Server(dir))
			ta.until("not provable without a GPU (no CUDA-capable device is detected)")
			if why := ta.view.Load().reasons[uuid(0)]; why != "" {
				t.Error(why)
			}
			before := ta.view.Load().daemons[uuid(0)]
			for range 3 {
				ta.apply(false)
			}
			after := ta.view.Load().daemons[uuid(0)]
			if before.Checked.Process() != after.Checked.Process() || before.SelfTest != after.SelfTest {
				t.Errorf("it goes on: %+v became %+v", before.SelfTest, after.SelfTest)
			}
		})
	}
}

// TestSimulatedServer: the trial's server comes and goes, a client's brings
// itself, and a fault is seen.
func TestSimulatedServer(t *testing.T) {
	for _, branch := range []string{"550", "555"} { // 535 tells no state of servers
		t.Run(branch, func(t *testing.T) {
			n := sim.New(t, branch+".1", "V100S")
			out, _ := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "show", "--json")
			var shown struct{ GPUs []struct{ UUID gpu.UUID } }
			if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.GPUs) != 1 {
				t.Fatal(err, out)
			}
			u := shown.GPUs[0].UUID
			env := "GPUSLOT_SIM_DRIVER=" + branch
			for _, v := range n.Vars() {
				env += " '" + v + "'"
			}
			ta := daemonAgent(t, u, "export "+env+"\nexec "+filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"), filepath.Join(n.Dir, "bin/nvidia-cuda-mps-server"))
			ta.until("starts with the first job (last proven at ")
			_, say := guest(t, n, filepath.Join(ta.view.Load().config.Paths.PipeRoot(), string(u)))
			ta.until("1 client)")
			say("fault")
			ta.until("FAULT")
		})
	}
}

// guest attaches a simulated client.
func guest(t *testing.T, n *sim.Node, pipes string) (pid int, say func(string)) {
	t.Helper()
	cmd := exec.Command(filepath.Join(n.Dir, "bin/simguest"), pipes)
	cmd.Env = n.Env()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "attached ") {
		t.Fatalf("the client says %q", lines.Text())
	}
	return cmd.Process.Pid, func(word string) {
		if _, err := fmt.Fprintln(in, word); err != nil {
			t.Fatal(err)
		}
	}
}
