package mps

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/sim"
)

// served is a control daemon, NVIDIA's or the simulated one, over simulated
// servers on a simulated node of one GPU.
type served struct {
	t      testing.TB
	branch string
	node   *sim.Node
	runner Processes
	wanted Wanted
	daemon *Daemon
}

// onServed runs a test with each control daemon.
func onServed(t *testing.T, test func(s *served)) {
	for _, branch := range driver.Branches() {
		for _, real := range []bool{true, false} {
			name := "sim " + branch
			if real {
				name = "real " + branch
			}
			t.Run(name, func(t *testing.T) { test(newServed(t, branch, real)) })
		}
	}
}

func newServed(t testing.TB, branch string, real bool) *served {
	t.Helper()
	n := sim.New(t, branch+".1", "V100S")
	control := filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control")
	if real {
		control = driver.Control(driver.Dir(t, branch))
	}
	control = publicCopy(t, control)
	s := &served{t: t, branch: branch, node: n, runner: runnerWith(t, onNode(t, n, branch, control))}
	server, err := os.ReadFile(filepath.Join(n.Dir, "bin/nvidia-cuda-mps-server"))
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(s.runner.ServerPath, "nvidia-cuda-mps-server"), string(server))
	s.wanted = Wanted{GPU: onlyGPU(t, n), Limit: 4096, ThreadPercentage: 50}
	set := New(s.runner.Root, s.runner.Program, s.runner)
	if r, err := set.Set(t.Context(), []Wanted{s.wanted}); err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	s.daemon = NewDaemon(s.wanted.GPU, filepath.Join(s.runner.Root, string(s.wanted.GPU)), control)
	return s
}

// onNode is a program that lives on the node: daemons have an environment of their own.
func onNode(t testing.TB, n *sim.Node, branch, program string) string {
	t.Helper()
	text := "#!/bin/sh\nexport GPUSLOT_SIM_DRIVER=" + branch
	for _, v := range n.Vars() {
		text += " '" + v + "'"
	}
	return writeProgram(t, filepath.Join(tempDir(t), Program), text+"\nexec "+program+" \"$@\"\n")
}

func onlyGPU(t testing.TB, n *sim.Node) gpu.UUID {
	t.Helper()
	out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "show", "--json")
	var shown struct{ GPUs []struct{ UUID gpu.UUID } }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 || len(shown.GPUs) != 1 {
		t.Fatalf("simgpu show: %v, exit code %d: %s", err, code, out)
	}
	return shown.GPUs[0].UUID
}

// logFile is where the daemon and its servers write.
func (s *served) logFile() string { return filepath.Join(s.runner.Logs, string(s.wanted.GPU)+".log") }

// server starts a server for our own account and waits until it answers.
func (s *served) server() Server {
	s.t.Helper()
	if err := s.daemon.StartServer(s.t.Context(), uint32(os.Geteuid())); err != nil {
		s.t.Fatal(err)
	}
	var found Server
	eventually(s.t, "a server answers", func() bool {
		all := s.servers()
		if len(all) == 1 {
			found = all[0]
		}
		return found.Answers() && found.Status == s.status(Active) // a new one may begin still
	})
	return found
}

func (s *served) servers() []Server {
	s.t.Helper()
	all, err := s.daemon.Servers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// status is what a driver says where it says anything.
func (s *served) status(want ServerStatus) ServerStatus {
	if s.branch == "535" {
		return StatusUnknown
	}
	return want
}

// guest is a simulated client.
type guest struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// guest starts a client and waits until it is in.
func (s *served) guest() *guest {
	s.t.Helper()
	g := s.newcomer()
	if l := g.line(); !strings.HasPrefix(l, "attached ") {
		s.t.Fatalf("a client: %q", l)
	}
	return g
}

func (s *served) newcomer() *guest {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.node.Dir, "bin/simguest"), s.daemon.PipeDirectory())
	cmd.Env = s.node.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	g := &guest{t: s.t, cmd: cmd, in: in, lines: make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.lines <- lines.Text()
		}
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return g
}

func (g *guest) pid() int { return g.cmd.Process.Pid }

func (g *guest) line() string {
	g.t.Helper()
	select {
	case l := <-g.lines:
		return l
	case <-time.After(5 * time.Minute):
		g.t.Fatal("the client says nothing")
		return ""
	}
}

// do gives it one word and returns its answer.
func (g *guest) do(word string) string {
	g.t.Helper()
	if _, err := fmt.Fprintln(g.in, word); err != nil {
		g.t.Fatal(err)
	}
	return g.line()
}

// counted is the daemon with a command line that leaves a line per run.
func (s *served) counted() (runs func() int) {
	s.t.Helper()
	file := filepath.Join(tempDir(s.t), "runs")
	s.daemon.program = writeProgram(s.t, filepath.Join(tempDir(s.t), "cli"), "#!/bin/sh\necho >>"+file+"\nexec "+s.daemon.program+"\n")
	return func() int {
		b, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
}
