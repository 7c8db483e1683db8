package starter

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestAlone: only for certain. Each line of a tree is a cgroup with its processes.
func TestAlone(t *testing.T) {
	const base, slot = "/system.slice/condor.service/htcondor", "_var_lib_condor_execute_slot1_1@wn1"
	const scope = base + "/" + slot + ".slice/" + slot + ".scope"
	const login = base + "/" + slot + "/sshd.slice/sshd.scope"
	own := "0::" + scope + "\n"
	for name, tt := range map[string]struct {
		cgroup string
		tree   map[string]string
		want   bool
	}{
		"the last":                {own, map[string]string{scope: "200\n"}, true},
		"a child":                 {own, map[string]string{scope: "200\n201\n"}, false},
		"a child in a cgroup":     {own, map[string]string{scope: "200\n", scope + "/a/b": "201\n"}, false},
		"a child that it moved":   {own, map[string]string{scope: "200\n", base + "/" + slot + ".slice/payload": "201\n"}, false},
		"an empty one beside":     {own, map[string]string{scope: "200\n", base + "/" + slot + ".slice/payload": ""}, true},
		"empty ones below":        {own, map[string]string{scope: "200\n", scope + "/a/b": ""}, true},
		"beside a login":          {own, map[string]string{scope: "200\n", login: "300\n"}, true},
		"a login":                 {"0::" + login + "\n", map[string]string{scope: "300\n", login: "200\n"}, true},
		"a login with a child":    {"0::" + login + "\n", map[string]string{login: "200\n201\n"}, false},
		"another slot's job":      {own, map[string]string{scope: "200\n", base + "/_var_lib_condor_execute_slot1_10@wn1": "301\n"}, true},
		"of another namespace":    {own, map[string]string{scope: "200\n0\n"}, false},
		"another tree":            {own, map[string]string{scope: ""}, false},
		"no tree":                 {own, nil, false},
		"from 24.0 to 24.7":       {"0::" + base + "/" + slot + "\n", map[string]string{base + "/" + slot: "200\n"}, true},
		"below a cgroup of its":   {"0::" + scope + "/slot9_9@wn1\n", map[string]string{scope: "201\n", scope + "/slot9_9@wn1": "200\n"}, false},
		"in no slot":              {"0::/system.slice\n", map[string]string{"/system.slice": "200\n"}, false},
		"a slot of cgroup v1":     {"4:memory:" + scope + "\n0::/\n", map[string]string{scope: "200\n"}, false},
		"a cgroup namespace":      {"0::/../" + slot + "\n", map[string]string{"/" + slot: "200\n"}, false},
		"the process has no file": {"", map[string]string{scope: "200\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, mount := t.TempDir(), t.TempDir()
			if tt.cgroup != "" {
				put(t, filepath.Join(root, "200/cgroup"), tt.cgroup)
			}
			for dir, procs := range tt.tree {
				for d := dir; d != "/"; d = filepath.Dir(d) {
					if file := filepath.Join(mount, d, "cgroup.procs"); d == dir || !exists(file) {
						put(t, file, map[bool]string{true: procs}[d == dir])
					}
				}
			}
			if got := callerAt(root).Alone(mount); got != tt.want {
				t.Errorf("alone = %v", got)
			}
		})
	}
}

// TestAloneUnreadable: what cannot be looked at may hold a process.
func TestAloneUnreadable(t *testing.T) {
	root, mount := t.TempDir(), t.TempDir()
	put(t, filepath.Join(root, "200/cgroup"), "0::/_slot1_1@wn1\n")
	put(t, filepath.Join(mount, "_slot1_1@wn1/cgroup.procs"), "200\n")
	if !callerAt(root).Alone(mount) {
		t.Fatal("not alone")
	}
	if err := os.Mkdir(filepath.Join(mount, "_slot1_1@wn1/threaded"), 0o755); err != nil {
		t.Fatal(err)
	}
	if callerAt(root).Alone(mount) {
		t.Error("alone beside a cgroup whose processes cannot be read")
	}
}

// TestAloneAmongMany: below more cgroups than are looked into there may be a process.
func TestAloneAmongMany(t *testing.T) {
	root, mount := t.TempDir(), t.TempDir()
	put(t, filepath.Join(root, "200/cgroup"), "0::/_slot1_1@wn1\n")
	put(t, filepath.Join(mount, "_slot1_1@wn1/cgroup.procs"), "200\n")
	for i := range deep.MostBelow {
		if i == deep.MostBelow-1 && !callerAt(root).Alone(mount) {
			t.Fatalf("not alone above %d", i)
		}
		put(t, filepath.Join(mount, "_slot1_1@wn1", strconv.Itoa(i), "cgroup.procs"), "")
	}
	if callerAt(root).Alone(mount) {
		t.Errorf("alone above %d", deep.MostBelow)
	}
}

// callerAt is process 200 as it is identified in a directory like /proc.
func callerAt(root string) Caller {
	c, _ := Node{FS: process.FS{Root: root}}.Identify(0, 200) // below no starter
	return c
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTogether: what a pilot moves into a cgroup of its own, below the slice that HTCondor gives
// to it, ends with its supervisor; a login and its job do not.
func TestTogether(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	const login = "/htcondor/_var_lib_condor_execute_slot1_1@wn1.example.org/sshd.slice"
	slice, _ := JobSlice(proctree.CgroupOf("slot1_1"))
	for pid, cgroup := range map[int]string{
		200: proctree.CgroupOf("slot1_1"), 201: slice + "/payload", 202: proctree.CgroupOf("slot1_1") + "/below",
		300: login + "/sshd.scope", 301: login + "/mine",
	} {
		f.Add(proctree.Process{PID: pid, Parent: s.PID, Comm: "x", UID: 1000, Cgroup: cgroup})
	}
	for of, with := range map[int][]int{200: {201, 202}, 300: {301}} {
		supervisor, err := f.fs().Identify(1000, of)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{201, 202, 300, 301} {
			if got := f.fs().Together(pid, supervisor, s); got != (slices.Contains(with, pid) || pid == of) {
				t.Errorf("%d goes with supervisor %d: %v", pid, of, got)
			}
		}
	}
}
