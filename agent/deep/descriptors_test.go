package deep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
)

// TestNoDescriptorStays: looks and removals close what they open, however they end.
func TestNoDescriptorStays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("directories become root's: run this test as root")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close them, too
	top, many, odd, empty := tree(t), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "top")
	for i := range MostBelow {
		mkdir(t, many, i)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(odd, "a/cgroup.procs"), 0o755), os.MkdirAll(filepath.Join(empty, "a/b"), 0o755)); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"a look", func() { list(top) }}, {"a look at too many", func() { list(many) }}, {"a look that fails", func() { list(odd) }},
		{"a removal", func() { _ = Remove(t.Context(), empty) }}, {"a removal that fails", func() { _ = Remove(t.Context(), top) }},
		{"a removal that is ended", func() { _ = Remove(ended, top) }},
	} {
		before := descriptors(t)
		if c.do(); descriptors(t) != before {
			t.Errorf("%s: %d descriptors, %d before", c.name, descriptors(t), before)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestRemoveTakesOwnership: what cannot go yet is root's, so that its owner makes no more there.
func TestRemoveTakesOwnership(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("directories become root's: run this test as root")
	}
	top := t.TempDir()
	child := filepath.Join(top, "child")
	if err := errors.Join(os.Mkdir(child, 0o755), os.WriteFile(filepath.Join(child, "file"), nil, 0o600),
		os.Chown(top, 1000, 1000), os.Chown(child, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), top); err == nil {
		t.Error("a directory with a file was removed")
	}
	for _, dir := range []string{top, child} {
		of, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if its := of.Sys().(*syscall.Stat_t); its.Uid != 0 || its.Gid != 0 {
			t.Errorf("%s is of %d:%d", dir, its.Uid, its.Gid)
		}
	}
}
