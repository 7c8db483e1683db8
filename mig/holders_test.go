package mig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
)

// proc writes a /proc: a path below it with its text, or "-> TARGET" for a link.
func proc(t *testing.T, files map[string]string) Proc {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && len(text) > 3 && text[:3] == "-> " {
			err = os.Symlink(text[3:], path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Proc{Root: root}
}

func TestHolders(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	whole := filepath.Join(t.TempDir(), "card")
	if err := unix.Mknod(whole, unix.S_IFCHR, int(unix.Mkdev(195, 0))); err != nil {
		t.Skipf("no device node can be made: run this test as root: %v", err)
	}
	named := filepath.Join(t.TempDir(), "dev/nvidia-caps/nvidia-cap3") // a file that a job gave the name of a node
	if err := errors.Join(os.MkdirAll(filepath.Dir(named), 0o755), os.WriteFile(named, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	p := proc(t, map[string]string{
		// As the driver prints it (MIG User Guide, Device Nodes and Capabilities).
		"driver/nvidia-caps/mig-minors":  "config 1\nmonitor 2\ngpu0/gi1/access 3\ngpu0/gi1/ci0/access 5\ngpu0/gi11/access 7\ngpu1/gi1/access 8\n",
		"devices":                        "Character devices:\n1 nvidia-caps\n195 nvidia-frontend\n",
		"100/comm":                       "python3\n",
		"100/cgroup":                     "0::/system.slice/condor.service/htcondor/condor_var_lib_condor_execute_slot1_1@node\n",
		"200/comm":                       "dcgm-exporter\n",
		"200/cgroup":                     "12:memory:/system.slice/other.service\n1:name=systemd:/system.slice/nvidia-dcgm.service\n0::/\n",
		"200/task/200/fd/0":              "-> " + self,   // no device
		"200/task/200/fd/7":              "-> /dev/zero", // 1:5, by whatever name
		"250/task/250/fd/7":              "-> " + named,
		"300/comm":                       "neighbour\n",
		"300/task/300/fd/1":              "-> /dev/full",   // 1:7
		"300/task/300/fd/2":              "-> /dev/random", // 1:8
		"300/task/300/fd/3":              "-> " + whole,
		"self/fd/1":                      "-> /dev/null", // 1:3
		self + "/task/" + self + "/fd/1": "-> /dev/null",
	})
	python := gpu.Holder{PID: 100, Command: "python3", Unit: "condor.service"}
	dcgm := gpu.Holder{PID: 200, Command: "dcgm-exporter", Unit: "nvidia-dcgm.service"}
	neighbour := gpu.Holder{PID: 300, Command: "neighbour"}
	gone := gpu.Holder{PID: 999}
	i := gpu.Instance{ID: 1, Holders: []gpu.Holder{{PID: 999}, {PID: 100}}}
	s := gpu.MIGState{MIGGPU: gpu.MIGGPU{Instances: []gpu.Instance{i}}, Holders: []gpu.Holder{{PID: 300}, {PID: 100}}}
	for name, c := range map[string]struct{ got, want []gpu.Holder }{
		"an instance":        {p.holdersOf(t.Context(), s, i), []gpu.Holder{python, dcgm, gone}},
		"without a minor":    {p.holdersOf(t.Context(), gpu.MIGState{Minor: -1}, gpu.Instance{ID: 1}), nil},
		"the GPU":            {p.users(s), []gpu.Holder{python, neighbour, gone}},
		"who has its node":   {p.openers(t.Context(), s), []gpu.Holder{neighbour}},
		"another GPU's node": {p.openers(t.Context(), gpu.MIGState{Minor: 1}), nil},
		"named":              {p.named(s).Instances[0].Holders, []gpu.Holder{gone, python}},
	} {
		if len(c.got)+len(c.want) > 0 {
			if d := cmp.Diff(c.want, c.got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	}
	if err := errors.Join(os.RemoveAll(p.Root+"/300/task/300/fd"), os.WriteFile(p.Root+"/300/task/300/fd", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := p.holdersOf(t.Context(), s, i); len(got) != 4 || !strings.Contains(got[0].Command, "300/task/300/fd: not a directory") {
		t.Errorf("what a process has open cannot be read: %+v", got)
	}
	if got := (Proc{Root: p.Root + "/none"}).holdersOf(t.Context(), gpu.MIGState{}, gpu.Instance{ID: 1}); len(got) != 1 {
		t.Errorf("processes cannot be listed: %+v", got)
	}
	minors := filepath.Join(p.Root, "driver/nvidia-caps/mig-minors")
	if err := errors.Join(os.Remove(minors), os.Mkdir(minors, 0o755)); err != nil {
		t.Fatal(err)
	}
	if got := p.holdersOf(t.Context(), gpu.MIGState{}, gpu.Instance{ID: 2}); len(got) == 0 || got[0].PID != 0 || !strings.Contains(got[0].Command, "mig-minors: is a directory") {
		t.Errorf("the driver's list of nodes cannot be read: %+v", got)
	}
	if err := os.Remove(minors); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := p.holdersOf(ended, s, i); len(got) != 3 || !strings.Contains(got[0].Command, "not all processes were looked at") {
		t.Errorf("after its deadline: %+v", got)
	}
	if i.Holders[1] != (gpu.Holder{PID: 100}) {
		t.Error("naming writes into the state that it was given")
	}
	if got := describeHolders([]gpu.Holder{python, gone, {Slot: "slot1_1"}, {}}); got != "pid 100 (python3, condor.service), pid 999, a slot (slot1_1), a process that NVML cannot name" {
		t.Error(got)
	}
}
