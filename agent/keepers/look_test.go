package keepers

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
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
	k.Memory = "/dev/no such node"
	if held := k.among(all, nil, nil); held.Err != nil || len(held.Holders) > 0 {
		t.Errorf("without the module: %+v", held)
	}
	k.Memory = "/dev"
	if held := k.among(all, nil, nil); held.Err == nil {
		t.Error("no device, and no error")
	}
}

// TestUnknownFiles: where the kernel compares no open files, a process with the node may keep memory.
func TestUnknownFiles(t *testing.T) {
	k := Finder{Memory: "/dev/full", Control: "/dev/zero"}
	f, err := os.Open(k.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := looking{Finder: k, memory: 1<<8 | 7, control: 1<<8 | 5, files: mostHandles, theirs: map[process.ID][]process.Handle{{PID: 1}: {{Thread: 1}}}}
	if h, is := l.holder(os.Getpid()); !is || !h.Unknown || h.Own || !h.May() {
		t.Errorf("%+v, %t", h, is)
	}
}
