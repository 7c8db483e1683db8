package main

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/sim"
)

// TestMIGScripts runs testdata/mig/*.txtar against the real program on a
// simulated node with an A100 and an H100. "hold GPU GI" puts a process on an
// instance until the script ends. "give SLOT" starts a gpuslotd that has given all that there is to a job.
func TestMIGScripts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: MIG and modes are root's")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/mig",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			n := sim.New(t, "550.163.01", "A100-40", "H100-80")
			for _, v := range n.Vars() {
				name, value, _ := strings.Cut(v, "=")
				e.Setenv(name, value)
			}
			e.Setenv("PATH", filepath.Join(n.Dir, "bin")+string(os.PathListSeparator)+e.Getenv("PATH"))
			config := "[paths]\nstate = \"" + filepath.Join(e.WorkDir, "state") + "\"\n"
			return os.WriteFile(filepath.Join(e.WorkDir, "gpuslot.toml"), []byte(config), 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"hold": hold, "give": give},
	})
}

func hold(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: hold GPU GI")
	}
	p := exec.Command("sleep", "120")
	ts.Check(p.Start())
	ts.Defer(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	ts.Check(ts.Exec("simgpu", "process", "add", strconv.Itoa(p.Process.Pid), args[0], "100", "10", args[1], "0"))
}

func give(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("simgpu", "show"))
	s := api.Status{JobTable: []api.StatusEntry{}}
	for _, u := range regexp.MustCompile(`(GPU|MIG)-[0-9a-f-]{36}`).FindAllString(ts.ReadFile("stdout"), -1) {
		s.JobTable = append(s.JobTable, api.StatusEntry{Slot: args[0], GPU: u})
	}
	l, err := net.Listen("unix", ts.MkAbs("agent.sock"))
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_ = json.NewEncoder(c).Encode(api.Reply{Version: api.Version, Status: &s})
			c.Close()
		}
	}()
}
