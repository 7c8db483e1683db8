package starter

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestDeepCgroup: before Linux 6.8 /proc/<pid>/cgroup cannot be read where the path is long. The
// process is its slot's all the same, also where the job made very many cgroups.
func TestDeepCgroup(t *testing.T) {
	f := newFakeProc(t)
	f.starter(100, "slot1_1")
	f.starter(101, "slot1_2")
	n := f.fs()
	n.Mount = t.TempDir()
	has := func(slot, below, pids string) {
		t.Helper()
		at := filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf(slot)), below)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(pids), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{200, 201} { // both left their parents behind
		f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "deep", UID: 1001})
		text := f.Root + "/" + strconv.Itoa(pid) + "/cgroup"
		if err := os.Remove(text); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(strings.Repeat("long", 100), text); err != nil { // to read it is ENAMETOOLONG
			t.Fatal(err)
		}
	}
	has("slot1_1", "", "300\n")
	has("slot1_2", strings.Repeat("deep/", 20), "300\n200\n")
	c, err := n.Identify(1001, 200)
	if err != nil || !SameSlot(c.Starter.Slot, "slot1_2") || c.Hook || !c.Leaf.Left || c.Leaf.slot == "" {
		t.Errorf("a process far below slot1_2: %+v, %v", c, err)
	}
	if p, err := n.UnifiedCgroup(200); err != nil || !strings.Contains(p, "slot1_2@") {
		t.Errorf("its cgroup is %q, %v", p, err)
	}
	if c, err := n.Identify(1001, 201); err == nil {
		t.Errorf("a process of no slot: %+v", c)
	}
	for i := range mostBelow {
		has("slot1_2", "many"+strconv.Itoa(i), "")
	}
	if c, err := n.Identify(1001, 201); err != nil || !SameSlot(c.Starter.Slot, "slot1_2") {
		t.Errorf("one that may be behind many cgroups of slot1_2: %+v, %v", c, err)
	}
}
