package faults

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs are built once, before the first test goes into its namespaces: those of a node, and below plain
// an agent without the race detector. That of a node has it, but for a benchmark.
var programs = sync.OnceValues(func() (string, error) {
	dir, plain := filepath.Join(os.Getenv(programsDir), "node"), filepath.Join(os.Getenv(programsDir), "plain")
	if os.Getenv(role) == "tests" {
		return dir, nil
	}
	if err := goBuild(plain+"/", nil, "cmd/gpuslotd"); err != nil {
		return "", err
	}
	if err := goBuild(dir+"/", nil, "cmd/gpuslot", "cmd/gpuslot-condor", "test/faults/starter"); err != nil {
		return "", err
	}
	flags := []string{"-race"}
	if os.Getenv(roundsVariable) != "" {
		flags = nil
	}
	if err := goBuild(dir+"/", flags, "cmd/gpuslotd"); err != nil {
		return "", err
	}
	// The agent knows a starter by the name of its program.
	return dir, os.Rename(filepath.Join(dir, "starter"), filepath.Join(dir, "condor_starter"))
})

func build(t *testing.T) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// plain is the agent without the race detector, which needs a third of its time. The campaign, the reactions and
// the hostile jobs have one with it.
func plain() string { return filepath.Join(os.Getenv(programsDir), "plain", "gpuslotd") }

// goBuild builds packages of this repository.
func goBuild(out string, flags []string, packages ...string) error {
	args := append([]string{"build", "-trimpath", "-o", out}, flags...)
	for _, p := range packages {
		args = append(args, "github.com/gpuslot/gpuslot/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, text)
	}
	return nil
}

// copyTree copies for everybody to read. Links between files become files.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o755)
	})
}
