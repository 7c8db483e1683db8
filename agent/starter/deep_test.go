package starter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// deepNode is a node with the starters of slot1_1 and slot1_2, and processes 200 and 201 that left
// their parents behind, of which the kernel does not show the cgroup.
func deepNode(t *testing.T) Node {
	t.Helper()
	f := newFakeProc(t)
	f.starter(100, "slot1_1")
	f.starter(101, "slot1_2")
	n := f.fs()
	n.Mount = t.TempDir()
	f.deep(t, 200, 0)
	f.deep(t, 201, 0)
	return n
}

// deep makes a process of which the kernel does not show the cgroup.
func (f fakeProc) deep(t *testing.T, pid int, started uint64) {
	t.Helper()
	f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "deep", UID: 1001, Started: started})
	text := f.Root + "/" + strconv.Itoa(pid) + "/cgroup"
	err := errors.Join(os.Remove(text), os.Symlink(strings.Repeat("long", 100), text)) // to read it is ENAMETOOLONG
	if err != nil {
		t.Fatal(err)
	}
}

// has makes a cgroup below a slot's slice, and returns its path.
func (n Node) has(t *testing.T, slot, below, pids string) string {
	t.Helper()
	at := filepath.Join(n.Mount, filepath.Dir(proctree.CgroupOf(slot)), below)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(pids), 0o644); err != nil {
		t.Fatal(err)
	}
	return at
}

// settled is the cgroup of a process, as soon as the looks into all slots have ended.
func (n Node) settled(t *testing.T, pid int) (cgroup string, err error) {
	t.Helper()
	until(t, func() bool {
		cgroup, err = n.unifiedCgroup(pid)
		return !errors.Is(err, deep.ErrHidden)
	})
	return cgroup, err
}

// hides puts pipes in the place of the lists of slots' cgroups, so that looks into them do not end.
func (n Node) hides(t *testing.T, slots ...string) {
	t.Helper()
	for _, slot := range slots {
		pipe := filepath.Join(n.has(t, slot, "", ""), "cgroup.procs")
		if err := errors.Join(os.Remove(pipe), unix.Mkfifo(pipe, 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // the looks end
				_ = w.Close()
			}
		})
	}
}

// TestHiddenSlots: while jobs hide the cgroups of their slots, gpuslotd's own looks wait for none of them, and what
// may be in any has no owner at first. Then it counts for one of those; where that one has no job on a GPU, it is taken
// for a user's own. A caller is refused.
func TestHiddenSlots(t *testing.T) {
	n := deepNode(t)
	n.has(t, "slot1_1", "", "201\n")
	n.hides(t, "slot1_2", "slot1_3", "slot1_4", "slot1_5", "slot1_6")
	for range 3 {
		if p, err := n.unifiedCgroup(200); !errors.Is(err, deep.ErrHidden) {
			t.Fatalf("a look of gpuslotd's waited: its cgroup is %q, %v", p, err)
		}
		if (Users{n}).OfUser(200) {
			t.Fatal("what may be a job's is taken for a user's own")
		}
	}
	if p, err := n.settled(t, 200); err != nil || !strings.Contains(p, "slot1_2@") {
		t.Errorf("of a hidden process the cgroup is %q, %v", p, err)
	}
	if !(Users{n}).OfUser(200) {
		t.Error("a job without GPUs that hides its slot protects a user's own process")
	}
	if c, err := n.Identify(0, 200); err != nil || !SameSlot(c.Starter.Slot, "slot1_2") {
		t.Errorf("a hidden process: %+v, %v", c, err)
	}
	if c, err := n.Identify(1001, 200); !errors.Is(err, deep.ErrHidden) {
		t.Errorf("a hidden caller: %+v, %v", c, err)
	}
	if p, err := n.settled(t, 201); err != nil || !strings.Contains(p, "slot1_1@") {
		t.Errorf("beside hidden slots, of a process of another the cgroup is %q, %v", p, err)
	}
	if (Users{n}).OfUser(201) {
		t.Error("beside hidden slots, a job's process is taken for a user's own")
	}
	f := fakeProc{proctree.Tree{Root: n.Root}}
	f.unreadable(t, "900/cgroup")
	if p, err := n.unifiedCgroup(200); err == nil {
		t.Errorf("where the slots are not known, its cgroup is %q", p)
	}
}

// TestDeepCgroup: before Linux 6.8 /proc/<pid>/cgroup cannot be read where the path is long. The
// process is its slot's all the same, also where the job made very many cgroups.
func TestDeepCgroup(t *testing.T) {
	n := deepNode(t)
	n.has(t, "slot1_1", "", "300\n")
	n.has(t, "slot1_2", strings.Repeat("deep/", 20), "300\n200\n")
	c, err := n.Identify(1001, 200)
	if err != nil || !SameSlot(c.Starter.Slot, "slot1_2") || c.Hook || !c.Leaf.Left || c.Leaf.slot == "" {
		t.Errorf("a process far below slot1_2: %+v, %v", c, err)
	}
	if p, err := n.settled(t, 200); err != nil || !strings.Contains(p, "slot1_2@") {
		t.Errorf("its cgroup is %q, %v", p, err)
	}
	if c, err := n.Identify(1001, 201); err == nil {
		t.Errorf("a process of no slot: %+v", c)
	}
	n = deepNode(t)
	n.has(t, "slot1_3", "", "200\n")
	for i := range deep.MostBelow {
		n.has(t, "slot1_2", "many"+strconv.Itoa(i), "")
	}
	if c, err := n.Identify(1001, 201); err != nil || !SameSlot(c.Starter.Slot, "slot1_2") {
		t.Errorf("one that may be behind many cgroups of slot1_2: %+v, %v", c, err)
	}
	if c, err := n.Identify(1001, 200); err != nil || !SameSlot(c.Starter.Slot, "slot1_3") {
		t.Errorf("one that is behind no others: %+v, %v", c, err)
	}
	until(t, func() bool { return (Users{n}).OfUser(201) }) // where the slot has no job that it counts for
}

// TestDeepCgroupDescriptors: however deep it is, few descriptors find the process.
func TestDeepCgroupDescriptors(t *testing.T) {
	n := deepNode(t)
	for _, name := range []string{"a", "b", "z"} {
		n.has(t, "slot1_2", strings.Repeat("d/", 200)+name, "300\n")
	}
	n.has(t, "slot1_2", strings.Repeat("d/", 100)+strings.Repeat("e/", 100), "200\n")
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)) + 20, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	p, err := n.settled(t, 200)
	_, other := n.settled(t, 201)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err != nil || !strings.Contains(p, "slot1_2@") || !errors.Is(other, unix.ENAMETOOLONG) {
		t.Errorf("its cgroup is %q, %v; that of another process: %v", p, err, other)
	}
}

// TestDaemonsAreFoundOnce: HTCondor's daemons are looked for once for all processes that began before. A file that
// cannot be read shows whether they were looked for again. A new slot is found at once.
func TestDaemonsAreFoundOnce(t *testing.T) {
	n := deepNode(t)
	n.Daemons = &Daemons{}
	f := newFakeProc(t)
	f.Root = n.Root
	const younger = 1 << 62
	f.deep(t, 202, younger)
	for _, pid := range []int{200, 201, 202} {
		until(t, func() bool { return (Users{n}).OfUser(pid) })
	}
	f.unreadable(t, "900/cgroup")
	for _, pid := range []int{200, 201} {
		until(t, func() bool {
			_, _ = n.Daemons.For(younger, func() ([]string, error) { return nil, nil }) // they were found a moment ago
			return (Users{n}).OfUser(pid)
		})
	}
	if (Users{n}).OfUser(202) {
		t.Error("for a process that began since, they were not looked for")
	}
	n.has(t, "slot1_9", "", "201\n")
	if p, err := n.settled(t, 201); err != nil || !strings.Contains(p, "slot1_9@") {
		t.Errorf("in a new slot the cgroup is %q, %v", p, err)
	}
}

// TestAccountsLookOnce: the slots are looked into once for all processes of the node, who may be asked for one after
// the other. A pipe stands for the list that they are in, and answers once. Where the machine is too busy for the look,
// there is another one.
func TestAccountsLookOnce(t *testing.T) {
	n := deepNode(t)
	f := newFakeProc(t)
	f.Root = n.Root
	pids := ""
	for pid := 200; pid < 240; pid++ {
		f.deep(t, pid, 0)
		pids += fmt.Sprintln(pid)
	}
	list := filepath.Join(n.has(t, "slot1_2", "", ""), "cgroup.procs")
	var missed []int
	for range 20 {
		if err := errors.Join(os.Remove(list), unix.Mkfifo(list, 0o600)); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() { answered <- os.WriteFile(list, []byte(pids), 0) }()
		all := n.accounts()
		missed = nil
		for pid := 200; pid < 240; pid++ {
			if all[pid].slot != "slot1_2" {
				missed = append(missed, pid)
			}
		}
		end, err := os.OpenFile(list, os.O_RDWR, 0) // ends what waits for it
		if err = errors.Join(err, <-answered, end.Close()); err != nil {
			t.Fatal(err)
		}
		if len(missed) == 0 {
			return
		}
	}
	t.Errorf("the last look missed %v", missed)
}
