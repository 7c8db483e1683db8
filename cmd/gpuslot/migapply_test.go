package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpuslot/gpuslot/test/sim"
)

// TestMIGScripts runs testdata/mig/*.txtar against the real program on a
// simulated node with an A100 and an H100. "hold GPU GI" puts a process on an
// instance until the script ends.
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"hold": hold},
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
