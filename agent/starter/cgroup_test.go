package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
