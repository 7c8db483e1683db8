package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestCgroupExists: another cgroup of the same name is another one.
func TestCgroupExists(t *testing.T) {
	dir := t.TempDir()
	job, next := filepath.Join(dir, "slot1_1.scope"), filepath.Join(dir, "next")
	for _, d := range []string{job, next} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	first, err := CgroupAt(job)
	if err != nil || !first.Exists() {
		t.Errorf("%+v: %v", first, err)
	}
	if err := errors.Join(os.Remove(job), os.Rename(next, job)); err != nil {
		t.Fatal(err)
	}
	if first.Exists() {
		t.Error("the next cgroup of the slot is taken for the first")
	}
	if err := os.Remove(job); err != nil {
		t.Fatal(err)
	}
	if first.Exists() || (Cgroup{Path: job}).Exists() {
		t.Error("a cgroup that is gone is there")
	}
}

// TestCgroupUnread: without file descriptors a cgroup may have processes, and one that cannot be
// looked at may be there. One that is gone has none.
func TestCgroupUnread(t *testing.T) {
	dir := t.TempDir()
	cgroup, err := CgroupAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("populated 0\nfrozen 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	proctree.WithoutDescriptors(t, func() {
		if !cgroup.Populated() || cgroup.Empty() || !cgroup.Exists() {
			t.Errorf("populated %t, empty %t, there %t", cgroup.Populated(), cgroup.Empty(), cgroup.Exists())
		}
	})
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if !(Cgroup{Path: filepath.Join(loop, "slot")}).Exists() {
		t.Error("a cgroup that cannot be looked at is gone")
	}
	if gone := (Cgroup{Path: filepath.Join(dir, "gone")}); cgroup.Populated() || gone.Populated() || gone.Exists() {
		t.Error("an empty cgroup, or one that is gone, has processes")
	}
}
