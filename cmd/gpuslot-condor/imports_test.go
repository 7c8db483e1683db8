package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Every GPU job waits for this program to start. These packages are known to
// cost a good part of a millisecond, or bring in those that do.
func TestImportsStayLight(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("go list:", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "github.com/gpuslot/gpuslot/agent/api") {
		t.Fatalf("go list names %q", deps)
	}
	for _, heavy := range []string{
		"net/http", "crypto/tls", "crypto/sha256", "crypto/rand", "log", "log/slog", "text/template", "html/template", "os/user",
		"math/big", "regexp", "testing", "runtime/cgo", "runtime/pprof", "encoding/xml", "compress/gzip",
		"github.com/BurntSushi/toml", "github.com/NVIDIA/go-nvml/pkg/nvml", "github.com/spf13/cobra",
		"github.com/prometheus/client_golang/prometheus", "golang.org/x/sys/unix",
		"github.com/gpuslot/gpuslot/agent", "github.com/gpuslot/gpuslot/agent/config", "github.com/gpuslot/gpuslot/mps",
	} {
		if slices.Contains(deps, heavy) {
			t.Errorf("gpuslot-condor depends on %s", heavy)
		}
	}
}
