// Package pictures holds what people look at to what it shows: the rules and
// dashboards of etc/ to a real Prometheus that scraped a real gpuslotd, the
// node page to a real Chromium. Both are Debian's, fetched by fetch.sh into the
// cache outside the repository. Start at rules_test.go, dashboards_test.go and
// page_test.go.
package pictures

import (
	"bytes"
	"context"
	_ "embed"
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

// fetchLimit bounds one fetch: 15 s is usual, Chromium is 150 MB.
const fetchLimit = 6 * time.Minute

// Fetch returns the directory of a program of fetch.sh, or skips the test with
// its sentence.
func Fetch(tb testing.TB, name string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), fetchLimit)
	defer cancel()
	file := filepath.Join(tb.TempDir(), "fetch.sh")
	if err := os.WriteFile(file, script, 0o700); err != nil {
		tb.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", file, name)
	// Not SIGKILL: the script then has no chance to remove what it half fetched.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		tb.Skipf("%s (%v)", lines[len(lines)-1], err)
	}
	return strings.TrimSpace(string(out))
}

// Promtool is the path of promtool.
func Promtool(tb testing.TB) string {
	return filepath.Join(Fetch(tb, "prometheus"), "usr/bin/promtool")
}
