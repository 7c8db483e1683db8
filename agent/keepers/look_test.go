package keepers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestLook: real processes hold a device, open or passed on, and the kernel says which open files are the same.
func TestLook(t *testing.T) {
	k := Finder{Memory: "/dev/full", Control: "/dev/zero"}
	file := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	run := func(files ...*os.File) process.ID {
		cmd := exec.CommandContext(t.Context(), "sleep", "600")
		cmd.ExtraFiles = files
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		s, err := k.Stat(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	f, other, control := file("/dev/full"), file("/dev/full"), file("/dev/zero")
	listed, worker := run(f, control), run(f, control)
	bare, both, initialised, none := run(other), run(f, other), run(file("/dev/full"), file("/dev/zero")), run(control)
	all := []int{none.PID, initialised.PID, both.PID, bare.PID, worker.PID, listed.PID, 1 << 30}
	held := k.among(all, []process.ID{listed}, nil)
	if held.Err != nil {
		t.Fatal(held.Err)
	}
	want := map[process.ID]Holder{
		worker:      {With: []process.ID{listed}},
		both:        {With: []process.ID{listed}, Own: true, Bare: true},
		bare:        {Own: true, Bare: true},
		initialised: {Own: true},
	}
	for _, h := range held.Holders {
		w, is := want[h.ID]
		if !is || !slices.Equal(w.With, h.With) || w.Own != h.Own || w.Bare != h.Bare {
			t.Errorf("%+v, want %+v", h, w)
		}
		delete(want, h.ID)
	}
	if len(want) > 0 {
		t.Errorf("not found: %+v", want)
	}
	var few, many []*os.File
	for range mostOwn {
		few = append(few, file("/dev/full"))
	}
	few = append(few, few[0])
	many = append(many, append(few, file("/dev/full"))...)
	a, b := run(few...), run(many...)
	held = k.among([]int{a.PID, b.PID}, []process.ID{a, b}, nil)
	if held.Err != nil || len(held.Holders) != 1 || held.Holders[0].ID != b || !held.Holders[0].Many {
		t.Errorf("listed, with %d files and one more: %+v", mostOwn, held)
	}
	for range fewHandles {
		few = append(few, few[0])
	}
	part := run(append(few, control)...)
	l := looking{Finder: k, memory: []uint64{1<<8 | 7}, control: 1<<8 | 5}
	if its, bare := l.ofDriver(part.PID); len(its) == 0 || bare || l.err == nil {
		t.Errorf("of %d files, some of which are not read: bare %t, %v", len(its), bare, l.err)
	}
	k.Memory = "/dev/no such node"
	if held := k.among(all, nil, nil); held.Err != nil || len(held.Holders) > 0 {
		t.Errorf("without the module: %+v", held)
	}
	k.Memory = "/etc/passwd"
	if held := k.among(all, nil, nil); held.Err == nil {
		t.Error("no device, and no error")
	}
}

// TestOutsideJobs: users' programs outside of jobs that have a node of the driver open, whichever account they are of.
func TestOutsideJobs(t *testing.T) {
	const slice = "/user.slice/user-1001.slice"
	f := proctree.New(t)
	s := starter.Starter{ID: f.Starter(100, "slot1_1"), Slot: "slot1_1"}
	add := func(pid, parent int, uid uint32, cgroup, opened string) {
		f.Add(proctree.Process{PID: pid, Parent: parent, Comm: "x", UID: uid, Cgroup: cgroup,
			Threads: []proctree.Thread{{TID: pid, State: "S", Cgroup: "0::" + cgroup + "\n", Opened: opened}}})
	}
	add(301, 1, 1001, slice+"/session-1.scope", "/dev/full")
	add(302, 1, 100123, slice+"/session-1.scope", "/dev/random")
	add(303, 1, 1001, "/system.slice/cron.service", "/dev/urandom")
	add(304, 1, 1001, "/system.slice/condor.service", "/dev/full")
	add(311, 1, 1001, slice+"/session-1.scope", "/dev/zero")
	add(312, 1, 0, slice+"/session-1.scope", "/dev/full")
	add(313, s.PID, 1001, proctree.CgroupOf("slot1_1"), "/dev/full")
	add(314, 1, 1001, "/system.slice/exporter.service", "/dev/full")
	add(315, 1, 1001, slice+"/session-1.scope", "/dev/full") // NVML lists it
	add(316, 1, 1001, slice+"/session-1.scope", "/dev/full") // a display
	k := Finder{
		Node: starter.Node{FS: process.FS{Root: f.Root}}, Nodes: "/dev/[fru][aru][aln]*", Memory: "/dev/[fr][au][ln]*",
	}
	held, done := k.OutsideJobs([]process.ID{{PID: 315, Started: proctree.StartOf(315)}, {PID: 316}, {PID: 301, Started: 7}}).Within(time.Minute)
	if !done || held.Err != nil {
		t.Fatalf("%t, %v", done, held.Err)
	}
	var got []int
	for _, h := range held.Holders {
		got = append(got, h.PID)
		if h.Memory != (h.PID != 303) {
			t.Errorf("process %d has a node of the memory manager: %t", h.PID, h.Memory)
		}
	}
	if want := []int{301, 302, 303, 304}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestOpens: the device numbers of the open files of a process and of its threads count. A GPU without a node counts as
// open.
func TestOpens(t *testing.T) {
	f := proctree.New(t)
	gpus := make([]gpu.UUID, 3)
	for minor := range gpus {
		gpus[minor] = gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", minor))
		dir := filepath.Join(f.Root, fmt.Sprintf("driver/nvidia/gpus/0000:0%d:00.0", minor))
		text := fmt.Sprintf("GPU UUID: \t %s\nDevice Minor: \t %d\n", gpus[minor], minor)
		err := os.MkdirAll(dir, 0o755)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	nodes := t.TempDir()
	for minor, device := range []string{"/dev/full", "/dev/zero"} {
		if err := os.Symlink(device, filepath.Join(nodes, fmt.Sprint("nvidia", minor))); err != nil {
			t.Fatal(err)
		}
	}
	f.Add(proctree.Process{PID: 301, Parent: 1, Comm: "x", UID: 1001, Threads: []proctree.Thread{
		{TID: 301, State: "S", Opened: "/dev/random"}, {TID: 302, State: "S", Opened: "/dev/full"}}})
	f.Add(proctree.Process{PID: 303, Parent: 1, Comm: "x", UID: 1001})
	k := Finder{Node: starter.Node{FS: process.FS{Root: f.Root}}, GPU: nodes + "/nvidia%d"}
	// Who has more open than is looked at hides it by that.
	many := process.FS{Root: f.Root}.Path(305, "task/305/fd")
	f.Add(proctree.Process{PID: 305, Parent: 1, Comm: "x", UID: 1001, Threads: []proctree.Thread{{TID: 305, State: "S", Opened: "/dev/null"}}})
	for n := range mostHandles + 1 {
		if err := os.Symlink("/dev/null", filepath.Join(many, fmt.Sprint(1000+n))); err != nil {
			t.Fatal(err)
		}
	}
	f.Add(proctree.Process{PID: 306, Parent: 1, Comm: "x", UID: 1002, Threads: []proctree.Thread{{TID: 306, State: "S"}}})
	hangs := process.FS{Root: f.Root}.Path(306, "map_files")
	if err := unix.Mkfifo(hangs, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proctree.AnswerPipe(hangs, ""); err != nil {
			t.Error(err)
		}
	})
	f.Add(proctree.Process{PID: 307, Parent: 1, Comm: "x", UID: 1001, Threads: []proctree.Thread{{TID: 307, State: "S"}, {TID: 308, State: "S"}}})
	if err := os.RemoveAll(process.FS{Root: f.Root}.Path(307, "task/308/fd")); err != nil { // it ends during the look
		t.Fatal(err)
	}
	proctree.WithoutDescriptors(t, func() {
		if k.Opens(301) != nil {
			t.Error("what gpuslotd cannot see counts for or against a process")
		}
	})
	for pid, want := range map[int][]bool{301: {true, false, true}, 303: {false, false, true}, 304: {false, false, true}, 305: {true, true, true},
		306: {true, true, true}, 307: {true, true, true}} {
		has, got := k.Opens(pid), []bool{}
		for _, u := range gpus {
			if has == nil {
				t.Fatalf("of process %d nothing is known", pid)
			}
			got = append(got, has(u))
		}
		if !slices.Equal(got, want) {
			t.Errorf("process %d: %v, want %v", pid, got, want)
		}
	}
}

// TestOutsideJobsUnseen: a process that cannot be looked at for want of descriptors may hold files.
func TestOutsideJobsUnseen(t *testing.T) {
	f := proctree.New(t)
	f.Add(proctree.Process{PID: 301, Parent: 1, Comm: "x", UID: 1001, Cgroup: "/user.slice/user-1001.slice/session-1.scope"})
	k := Finder{Node: starter.Node{FS: process.FS{Root: f.Root}}, Nodes: "/dev/ful*"}
	l := k.outside(nil)
	if k.Memory = "/etc/passwd"; k.outside(nil).err == nil {
		t.Error("the memory manager's node is no device, and there is no error")
	}
	proctree.WithoutDescriptors(t, func() {
		if has, _ := l.holds(301); has || l.err == nil {
			t.Errorf("its files: %v", l.err)
		}
		if held, done := k.OutsideJobs(nil).Within(time.Minute); !done || held.Err == nil {
			t.Errorf("the look: %t, %v", done, held.Err)
		}
		if _, err := devicesAt("/dev/ful*"); err == nil {
			t.Error("the nodes")
		}
	})
}

// TestUnknownFiles: where the kernel compares no open files, a process with the node may keep memory.
func TestUnknownFiles(t *testing.T) {
	k := Finder{Control: "/dev/zero"}
	f, err := os.Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := looking{Finder: k, memory: []uint64{1<<8 | 7}, control: 1<<8 | 5, files: mostHandles,
		theirs: map[process.ID][]process.Handle{{PID: 1}: {{Thread: 1}}}}
	if h, is := l.holder(os.Getpid()); !is || !h.Unknown || h.Own || !h.May() {
		t.Errorf("%+v, %t", h, is)
	}
}
