package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// relate makes a process of a /proc in dir, with the namespace of its PIDs and the children
// of its first thread; empty for what the kernel does not say.
func relate(t *testing.T, dir string, pid, parent, started int, namespace, children string) {
	t.Helper()
	at := filepath.Join(dir, fmt.Sprint(pid))
	for _, d := range []string{"ns", fmt.Sprintf("task/%d", pid)} {
		if err := os.MkdirAll(filepath.Join(at, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stat := fmt.Sprintf("%d (a) S %d 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1\n", pid, parent, started)
	if err := os.WriteFile(filepath.Join(at, "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	if namespace != "" {
		_ = os.Remove(filepath.Join(at, "ns/pid"))
		if err := os.Symlink(namespace, filepath.Join(at, "ns/pid")); err != nil {
			t.Fatal(err)
		}
	}
	if children != "" {
		if err := os.WriteFile(filepath.Join(at, fmt.Sprintf("task/%d/children", pid)), []byte(children), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelations: namespaces, children and parents are as the kernel says them.
func TestRelations(t *testing.T) {
	dir := t.TempDir()
	fs := FS{Root: dir}
	relate(t, dir, 10, 1, 100, "pid:[1]", "11 12 ")
	relate(t, dir, 11, 10, 110, "pid:[2]", " ")
	relate(t, dir, 12, 10, 120, "", "")
	if !fs.SameNamespace(11) {
		t.Error("whose own namespace is not known asks, and is refused")
	}
	if err := os.Symlink("10", filepath.Join(dir, "self")); err != nil {
		t.Fatal(err)
	}
	for pid, same := range map[int]bool{10: true, 11: false, 12: false, 13: false} {
		if fs.SameNamespace(pid) != same {
			t.Errorf("process %d is in the same namespace: %t", pid, !same)
		}
	}
	put(t, filepath.Join(dir, "10/task/9/.keep"), "") // a thread that has ended
	for pid, want := range map[int][]int{10: {11, 12}, 11: nil, 12: {10, 11, 12}, 13: nil} {
		if got, err := fs.Children(pid); err != nil || !slices.Equal(got, want) {
			t.Errorf("children of %d: %v, %v, want %v", pid, got, err, want)
		}
	}
	was := make([]Stat, 0, 2)
	for _, pid := range []int{11, 10} {
		s, err := fs.Stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		was = append(was, s)
	}
	if !fs.Unchanged(was) {
		t.Error("nothing has changed")
	}
	fit := func(of int) func(ID) bool { return func(parent ID) bool { return parent == ID{of, 100} } }
	if !fs.StartedBy(ID{11, 110}, fit(10)) || fs.StartedBy(ID{11, 110}, fit(12)) || fs.StartedBy(ID{11, 111}, fit(10)) {
		t.Error("who started a process is not seen")
	}
	all := func(ID) bool { return true }
	relate(t, dir, 13, 99, 130, "", "")
	if fs.StartedBy(ID{13, 130}, all) || fs.StartedBy(ID{}, all) {
		t.Error("a process that cannot be read has started one")
	}
	ended := fmt.Sprintf("11 (a) Z %d 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1\n", 10, 110)
	put(t, filepath.Join(dir, "11/stat"), ended)
	if fs.Unchanged(was) {
		t.Error("an end whose entry is still there is not seen")
	}
	relate(t, dir, 11, 1, 110, "", "") // its parent has ended
	if fs.Unchanged(was) {
		t.Error("another parent is not seen")
	}
	relate(t, dir, 11, 10, 111, "", "") // another process of its PID
	if fs.Unchanged(was) {
		t.Error("another process is not seen")
	}
	if err := os.RemoveAll(filepath.Join(dir, "11")); err != nil {
		t.Fatal(err)
	}
	if fs.Unchanged(was) {
		t.Error("an end is not seen")
	}
}
