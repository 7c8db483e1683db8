package proctree

import (
	"os"
	"strings"
	"testing"
)

// CgroupMount is where this machine has cgroup v2. A test that needs it is skipped elsewhere.
func CgroupMount(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Skip("this host has no cgroup v2")
	return ""
}
