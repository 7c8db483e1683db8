// Package driver fetches NVIDIA's real MPS programs for tests and for the
// demo, and the parts of its toolkit that hold C programs to it. They are Debian's packages from non-free, kept in a cache outside the
// repository: their licences do not allow to carry them. fetch.sh does the work. Start at Dir in a test, at Fetch elsewhere.
package driver

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed fetch.sh
var script []byte

// installed is a variable with the path of a control program to test instead of
// the fetched ones, as on a machine with a GPU.
const installed = "GPUSLOT_MPS_CONTROL"

// here is the branch of that program.
const here = "here"

// Branches are the driver branches that Debian offers, oldest first; or "here" alone.
func Branches() []string {
	if os.Getenv(installed) != "" {
		return []string{here}
	}
	return []string{"535", "550", "555"}
}

// timeout bounds one fetch: 2 s is usual, a slow mirror sends 4 MB in a minute.
const timeout = 3 * time.Minute

// toolkitTimeout bounds the fetch of one of the toolkit's packages, of 87 and 930 MB.
const toolkitTimeout = 20 * time.Minute

// Fetch returns the directory that holds the programs of a driver branch
// ("535", "550" or "555") and fetches them first when they are not in the
// cache. The control daemon is Control(dir). Its error is one sentence.
func Fetch(ctx context.Context, branch string) (string, error) { return fetch(ctx, timeout, branch) }

func fetch(ctx context.Context, most time.Duration, which ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	dir, err := os.MkdirTemp("", "gpuslot-driver-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The script travels in the binary: a test binary may run far from its source.
	file := filepath.Join(dir, "fetch.sh")
	if err := os.WriteFile(file, script, 0o700); err != nil {
		return "", err
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", append([]string{file}, which...)...)
	// Not SIGKILL: the script then has no chance to remove what it half fetched.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", errors.New(reason(log.String(), err))
	}
	return strings.TrimSpace(string(out)), nil
}

// reason is the script's last line, which says why.
func reason(log string, err error) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return fmt.Sprintf("fetch the NVIDIA driver: %v", err)
}

// Dir is Fetch for tests: it skips the test with one sentence where the branch
// cannot be had.
func Dir(tb testing.TB, branch string) string {
	tb.Helper()
	if branch == here {
		return here
	}
	dir, err := Fetch(tb.Context(), branch)
	if err != nil {
		tb.Skip(err)
	}
	return dir
}

// Ptxas is the path of NVIDIA's assembler, of CUDA 12.4: it knows GPUs to sm_90a.
// It skips the test where it cannot be had.
func Ptxas(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(toolkit(tb, "ptxas"), "usr/bin/ptxas")
}

// Headers is the directory of CUDA's cuda.h. 930 MB must be fetched for it once,
// which only the campaign does: elsewhere the test is skipped where the cache
// does not have it.
func Headers(tb testing.TB) string {
	tb.Helper()
	which := []string{"cuda.h", "kept"}
	if os.Getenv("GPUSLOT_CAMPAIGN") != "" {
		which = which[:1]
	}
	return filepath.Join(toolkit(tb, which...), "usr/include")
}

func toolkit(tb testing.TB, which ...string) string {
	tb.Helper()
	dir, err := fetch(tb.Context(), toolkitTimeout, which...)
	if err != nil {
		tb.Skip(err)
	}
	return dir
}

// Control is the path of nvidia-cuda-mps-control in a directory of Fetch.
func Control(dir string) string {
	if dir == here {
		return os.Getenv(installed)
	}
	return filepath.Join(dir, "usr/bin/nvidia-cuda-mps-control")
}

// Server is the path of nvidia-cuda-mps-server, whose directory must be on the
// PATH of the control daemon.
func Server(dir string) string { return filepath.Join(dir, "usr/sbin/nvidia-cuda-mps-server") }

// Libraries is the directory of libcuda.so.1 and libnvidia-ml.so.1.
func Libraries(dir string) string {
	return filepath.Join(dir, "usr/lib/x86_64-linux-gnu/nvidia/current")
}

// Version is the full driver version of a directory of Fetch, as "550.163.01".
func Version(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}
