package order

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRemoveDir: what a node mounted below its directory stays as it is, also while somebody uses it.
func TestRemoveDir(t *testing.T) {
	tree, dir := t.TempDir(), t.TempDir()
	inside := filepath.Join(tree, "exec")
	if err := errors.Join(os.Mkdir(inside, 0o755), os.Mkdir(OwnCgroups(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(tree, OwnCgroups(dir), "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("only root mounts: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(OwnCgroups(dir), syscall.MNT_DETACH) }) // it may be gone
	busy, err := os.Open(filepath.Join(OwnCgroups(dir), "exec"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := RemoveDir(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(inside); err != nil {
		t.Errorf("what was mounted is gone: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory stays: %v", err)
	}
	if err := RemoveDir(dir); err != nil {
		t.Errorf("where nothing is: %v", err)
	}
}
