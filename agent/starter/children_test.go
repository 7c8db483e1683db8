package starter

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestChildren: the kernel's list, where it has one.
func TestChildren(t *testing.T) {
	f := newFakeProc(t)
	st := f.starter(100, "slot1_1")
	f.Add(proctree.Process{PID: 200, Parent: 1, Comm: "other"})
	if got, err := f.fs().Children(st.PID); err != nil || !slices.Equal(got, []int{100, 200, 900}) {
		t.Errorf("without a list: %v", got)
	}
	if got, err := f.fs().Children(99); err != nil || len(got) != 0 {
		t.Errorf("of a process that has ended: %v", got)
	}
	dir := filepath.Join(f.Root, "100/task/100")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "children"), []byte("101 1200 "), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.Root, "100/task/103"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Root, "100/task/103/children"), []byte("1300 "), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.Root, "100/task/102"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []int{101, 1200, 1300}
	if got, err := f.fs().Children(st.PID); err != nil || !slices.Equal(got, want) {
		t.Errorf("one thread has ended: %v", got)
	}
	long := "1300 "
	for pid := 2000; pid < 4000; pid++ {
		long += strconv.Itoa(pid) + " "
		want = append(want, pid)
	}
	if err := os.WriteFile(filepath.Join(f.Root, "100/task/103/children"), []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := f.fs().Children(st.PID); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d of %d children", len(got), len(want))
	}
}
