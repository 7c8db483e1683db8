package closures

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestHolders names who keeps the driver's modules.
func TestHolders(t *testing.T) {
	root := t.TempDir()
	fd := filepath.Join(root, "812/task/812/fd")
	devices := "Character devices:\n  1 nvidia\n195 nvidia-uvm\n  5 /dev/tty\n\nBlock devices:\n  7 nvidia\n"
	if err := os.WriteFile(filepath.Join(root, "devices"), []byte(devices), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, link := range map[string]string{fd: "/dev/null", filepath.Join(root, "900/task/900/fd"): "/dev/nvidia0", filepath.Join(root, "901/task/901/fd"): "/dev/tty"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link, filepath.Join(dir, "3")); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"comm": "nvidia-persiste\n", "cgroup": "0::/system.slice/nvidia-persistenced.service\n"} {
		if err := os.WriteFile(filepath.Join(root, "812", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Holders(process.FS{Root: root})
	if err != nil || len(got) != 1 || got[0] != (api.NodeHolder{PID: 812, Name: "nvidia-persiste", Unit: "nvidia-persistenced.service"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{"901/task/901/fd", "devices"} { // what cannot be read
		name = filepath.Join(root, name)
		if err := errors.Join(os.RemoveAll(name), os.Symlink(name, name)); err != nil {
			t.Fatal(err)
		}
		if got, err := Holders(process.FS{Root: root}); err == nil {
			t.Errorf("without %s: %+v", name, got)
		}
	}
}

// FuzzDriverMajors: the driver's devices are no other's.
func FuzzDriverMajors(f *testing.F) {
	f.Add("Character devices:\n195 nvidia-frontend\n509 nvidia-caps\n\nBlock devices:\n  7 nvidia\n")
	f.Add("Character devices:\n 0 nvidia\n5 /dev/tty\nnvidia\n")
	f.Fuzz(func(t *testing.T, text string) {
		for major := range driverMajors(text) {
			if major == 0 || !strings.Contains(text, strconv.Itoa(int(major))+" nvidia") {
				t.Errorf("%d", major)
			}
		}
	})
}

// TestForeignWordsOfHolders: what a process calls itself is printed as text of one line.
func TestForeignWordsOfHolders(t *testing.T) {
	proc := proctree.New(t)
	runs := proctree.Thread{TID: 700, State: "S", Opened: "/dev/null"}
	if err := os.WriteFile(filepath.Join(proc.Root, "devices"), []byte("1 nvidia\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	proc.Add(proctree.Process{PID: 700, Parent: 1, Comm: "\x1b[31mroot", Threads: []proctree.Thread{runs}})
	if got, err := Holders(process.FS{Root: proc.Root}); err != nil || len(got) != 1 || got[0].Name != "?[31mroot" {
		t.Errorf("a process calls itself %+v, %v", got, err)
	}
}

// TestManyHolders: so many are listed that they can be read, and it is said that there are more.
func TestManyHolders(t *testing.T) {
	proc := proctree.New(t)
	if err := os.WriteFile(filepath.Join(proc.Root, "devices"), []byte("1 nvidia\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := 700
	for i, more := range []bool{false, true} {
		for pid := first; pid < 700+mostHolders+i; pid++ {
			holds := proctree.Thread{TID: pid, State: "S", Opened: "/dev/null"}
			proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "holds", Threads: []proctree.Thread{holds}})
		}
		first += mostHolders
		if got, err := Holders(process.FS{Root: proc.Root}); len(got) != mostHolders || (err != nil) != more {
			t.Errorf("%d are listed: %v", len(got), err)
		}
	}
}
