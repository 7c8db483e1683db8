package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// contract builds the suite of gpu/nvml that holds it to nvidia-smi: the same
// one runs on hardware with go test -tags gpu ./gpu/nvml.
func contract(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "contract.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "gpu", "-o", binary, "github.com/gpuslot/gpuslot/gpu/nvml")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the contract suite: %v\n%s", err, out)
	}
	return binary
}

// keeps runs the suite on the node: one process, one library. nvidia-smi 550
// speaks through the whole library: it needs names that old drivers lack.
func (n *Node) keeps(t *testing.T, suite, stock string) {
	t.Helper()
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s \"$@\"\n", filepath.Join(n.Dir, "lib"), stock)
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), suite, "-test.run", "^TestContract", "-test.v", "-test.count=1")
	cmd.Env = append(n.Env(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestContract") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestContract: every model on every driver branch, and all models of the
// machine room in one node.
func TestContract(t *testing.T) {
	suite, stock := contract(t), smi(t, "550")
	keys, err := Models(t.Context(), Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, branch := range append(Branches(), Newer()...) {
		for _, key := range keys {
			t.Run(branch+"/"+key, func(t *testing.T) {
				NewVariant(t, branch, key).keeps(t, suite, stock)
			})
		}
		t.Run(branch+"/all", func(t *testing.T) {
			n := NewVariant(t, branch, keys...)
			n.Poke(t, "set", "2", "mig", "1")
			n.Poke(t, "set", "0", "compute_mode", "3")
			n.keeps(t, suite, stock)
		})
	}
}
