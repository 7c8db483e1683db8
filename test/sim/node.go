package sim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Node is a simulated GPU node: a state file, and what a process needs in its
// environment to live on it.
type Node struct {
	Dir   string   // of Build
	State string   // the state file
	lib   string   // directories of the libraries
	extra []string // more variables
}

// Models are the keys of the GPU models, as a node file and New spell them.
func Models(ctx context.Context, dir string) ([]string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "bin/simpoke"), "models").Output()
	if err != nil {
		return nil, fmt.Errorf("list the GPU models: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// New makes a node for a test: the driver version ("550.163.01") and one model
// ("A100-40") for each GPU. It skips the test where there is no gcc.
func New(tb testing.TB, driver string, models ...string) *Node {
	tb.Helper()
	dir := Dir(tb)
	// Not TempDir: jobs of other accounts must reach the state.
	tmp, err := os.MkdirTemp("", "sim")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o755); err != nil {
		tb.Fatal(err)
	}
	extra, err := sanitizerVars(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	n := &Node{Dir: dir, State: filepath.Join(tmp, "state"), lib: filepath.Join(dir, "lib"), extra: extra}
	n.Poke(tb, append([]string{"make", driver}, models...)...)
	return n
}

// Dir is Build for tests.
func Dir(tb testing.TB) string {
	tb.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		tb.Skip("no gcc here: the simulated node is C")
	}
	dir, err := Build(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Vars are the variables that make a process live on the node.
func (n *Node) Vars() []string {
	return append([]string{"GPUSLOT_SIM_STATE=" + n.State, "LD_LIBRARY_PATH=" + n.lib}, n.extra...)
}

// sanitizerVars are what a client of sanitized libraries needs: the sanitizer
// must be loaded first, and the client's own leaks are not ours.
func sanitizerVars(ctx context.Context) ([]string, error) {
	if !sanitized() {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, "gcc", "-print-file-name=libasan.so").Output()
	if err != nil {
		return nil, fmt.Errorf("find gcc's libasan.so: %w", err)
	}
	return []string{"LD_PRELOAD=" + strings.TrimSpace(string(out)), "ASAN_OPTIONS=detect_leaks=0"}, nil
}

// Env is the environment of this process with Vars.
func (n *Node) Env() []string { return append(os.Environ(), n.Vars()...) }

// Lib is the directory of the node's libnvidia-ml.so.1.
func (n *Node) Lib() string { return n.lib }

// commandLimit bounds one command on the node.
const commandLimit = 3 * time.Minute

// Run runs a command on the node and returns its output (both streams) and its
// exit code; -1 if it was killed.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = n.Env()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Poke runs simpoke, which must do what it is told.
func (n *Node) Poke(tb testing.TB, args ...string) string {
	tb.Helper()
	out, code := n.Run(tb.Context(), filepath.Join(n.Dir, "bin/simpoke"), args...)
	if code != 0 {
		tb.Fatalf("simpoke %v: exit code %d: %s", args, code, out)
	}
	return out
}
