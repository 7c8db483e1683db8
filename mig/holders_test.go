package mig

import (
	"context"
	"errors"
	"fmt"
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

// holdersOf are the users that keep an instance from being destroyed.
func holdersOf(ctx context.Context, p Proc, s gpu.MIGState, i gpu.Instance) []gpu.Holder {
	s.Instances = []gpu.Instance{i}
	step := Step{Verb: Destroy, Place: i.Place}
	return Executor{Proc: p}.holdersAgainst(s, step, p.against(ctx, s, step))
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
		"an instance":        {holdersOf(t.Context(), p, s, i), []gpu.Holder{python, dcgm, gone}},
		"without a minor":    {holdersOf(t.Context(), p, gpu.MIGState{Minor: -1}, gpu.Instance{ID: 1}), []gpu.Holder{{Command: "the minor number of the GPU is not known"}}},
		"the GPU":            {p.users(s), []gpu.Holder{python, neighbour, gone}},
		"who has its node":   {p.withNode(t.Context(), s), []gpu.Holder{neighbour}},
		"another GPU's node": {p.withNode(t.Context(), gpu.MIGState{Minor: 1}), nil},
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
	if got := holdersOf(t.Context(), p, s, i); len(got) != 4 || !strings.Contains(got[0].Command, "300/task/300/fd: not a directory") {
		t.Errorf("what a process has open cannot be read: %+v", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := holdersOf(ended, p, s, i); len(got) != 3 || !strings.Contains(got[0].Command, "not all processes were looked at") {
		t.Errorf("after its deadline: %+v", got)
	}
	minors := filepath.Join(p.Root, "driver/nvidia-caps/mig-minors")
	if err := errors.Join(os.Remove(minors), os.Mkdir(minors, 0o755)); err != nil {
		t.Fatal(err)
	}
	if got := holdersOf(t.Context(), p, gpu.MIGState{}, gpu.Instance{ID: 2}); len(got) == 0 || got[0].PID != 0 || !strings.Contains(got[0].Command, "mig-minors: is a directory") {
		t.Errorf("the driver's list of nodes cannot be read: %+v", got)
	}
	if err := os.Remove(minors); err != nil {
		t.Fatal(err)
	}
	if got := holdersOf(t.Context(), p, s, i); len(got) != 2 || got[0].PID == 0 {
		t.Errorf("a driver without such nodes: %+v", got)
	}
	if i.Holders[1] != (gpu.Holder{PID: 100}) {
		t.Error("naming writes into the state that it was given")
	}
	if got := describeHolders([]gpu.Holder{python, gone, {Slot: "slot1_1"}, {}}); got != "pid 100 (python3, condor.service), pid 999, a slot (slot1_1), a process that NVML cannot name" {
		t.Error(got)
	}
}

// TestLooksOfAChange: a change looks at all processes before and after its own holders are stopped, however many instances
// go. Who has a device node open is named for each instance whose node it is, and for no other.
func TestLooksOfAChange(t *testing.T) {
	f, e := given(t, one2, one3, two0, three4)
	e.Proc = proc(t, map[string]string{
		"devices":           "Character devices:\n1 nvidia-caps\n",
		"100/comm":          "python3\n",
		"100/task/100/fd/1": "-> /dev/null", // 1:3
		"100/task/100/fd/2": "-> /dev/zero", // 1:5
		"200/task/200/fd/1": "-> /dev/full", // 1:7
		"driver/nvidia-caps/mig-minors": fmt.Sprintf("gpu0/gi%d/access 3\ngpu0/gi%d/ci0/access 5\ngpu0/gi%d/access 9\ngpu0/gi%d/access 7\n",
			f.id(t, one2), f.id(t, one3), f.id(t, two0), f.id(t, three4)),
	})
	looks := opens(t, filepath.Join(e.Proc.Root, "devices"))
	out, err := e.Apply(t.Context(), testGPU, on(three4))
	if out.End != Unchanged || looks() != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	for what, is := range map[string]bool{
		"destroy 1g.5gb at 2: in use by another client; held by pid 100 (python3)": true,
		"destroy 1g.5gb at 3: in use by another client; held by pid 100 (python3)": true,
		"destroy 2g.10gb at 0": false, "destroy 3g.20gb": false, "pid 200": false,
	} {
		if strings.Contains(fmt.Sprint(err), what) != is {
			t.Errorf("%q: %t in %v", what, !is, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(e.Proc.Root, "100")); err != nil {
		t.Fatal(err)
	}
	if out, err := e.Apply(t.Context(), testGPU, on(three4)); out.End != ReachedWanted || len(out.Steps) != 3 || looks() != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestLooksOfARecovery: a change that an earlier process left looks once, and again where somebody has a node open of what
// goes, who may have closed it.
func TestLooksOfARecovery(t *testing.T) {
	f, e := given(t, one2, one3, two0)
	e.Proc = proc(t, map[string]string{
		"devices":                       "Character devices:\n1 nvidia-caps\n",
		"100/task/100/fd/1":             "-> /dev/null", // 1:3
		"driver/nvidia-caps/mig-minors": fmt.Sprintf("gpu0/gi%d/access 3\n", f.id(t, one3)),
	})
	journal, err := ReadJournal(e.Dir, testGPU)
	if err != nil {
		t.Fatal(err)
	}
	journal.Change = &Change{Former: on(one2, one3, two0), Wanted: on()}
	if err := journal.write(e.Dir); err != nil {
		t.Fatal(err)
	}
	f.before = func(_ string, p gpu.Place) error {
		if p == one2 { // the second instance that goes; one3 is the third
			return os.RemoveAll(filepath.Join(e.Proc.Root, "100"))
		}
		return nil
	}
	looks := opens(t, filepath.Join(e.Proc.Root, "devices"))
	if out, err := e.Recover(t.Context(), testGPU); out.End != ReachedWanted || len(out.Steps) != 3 || looks() != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}

// id is the driver's of the GPU instance at a place.
func (f *fakeGPU) id(t *testing.T, p gpu.Place) int {
	t.Helper()
	i, there := f.s.At(p)
	if !there {
		t.Fatalf("nothing is at %+v", p)
	}
	return i.ID
}

// opens counts how often a file was opened since it was last asked.
func opens(t *testing.T, file string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	// Events that are equal and follow each other are one, so that its reading is watched, too.
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_OPEN|unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	return func() int {
		text := make([]byte, 1<<16)
		n, err := unix.Read(fd, text)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return max(n, 0) / unix.SizeofInotifyEvent / 2
	}
}
