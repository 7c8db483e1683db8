package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestIsHook: by kernel facts alone.
func TestIsHook(t *testing.T) {
	const program = "/usr/libexec/gpuslot/gpuslot-condor"
	ours := proctree.Process{PID: 4000, Parent: 1000, Comm: "prepare", Exe: program, UID: 1000}
	for name, tt := range map[string]struct {
		change func(f fakeProc, p *proctree.Process, c *Caller)
		want   bool
	}{
		"the hook":                    {func(fakeProc, *proctree.Process, *Caller) {}, true},
		"a process of the job":        {func(_ fakeProc, _ *proctree.Process, c *Caller) { c.Hook = false }, false},
		"below a hook of the site's":  {func(_ fakeProc, p *proctree.Process, _ *Caller) { p.Parent = 3999 }, false},
		"it is gone":                  {func(_ fakeProc, p *proctree.Process, _ *Caller) { p.PID = 4001 }, false},
		"another process has its PID": {func(_ fakeProc, p *proctree.Process, c *Caller) { p.Started = c.Started + 1 }, false},
		"another program":             {func(_ fakeProc, p *proctree.Process, _ *Caller) { p.Exe = "/usr/bin/python3" }, false},
		"a program that anybody may write": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			if err := os.Chmod(f.Program(program), 0o777); err != nil {
				t.Error(err)
			}
		}, false},
		"a program that is not root's": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			if err := os.Chown(f.Program(program), 4711, 0); err != nil {
				t.Skip("giving files away needs root")
			}
		}, false},
		"a file transfer plugin, below a copy of the starter": {func(f fakeProc, p *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 1001, Parent: 1000, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-a", "slot1_1"}})
			p.Parent = 1001
		}, false},
		"the starter of a job without GPUs": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 1000, Parent: 900, Comm: "condor_starter", Args: []string{"condor_starter", "-f", "-local-name", "slot_type_502", "-a", "slot1_1"}})
		}, false},
		"a starter without a slot type": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 1000, Parent: 900, Comm: "condor_starter", Args: []string{"condor_starter", "-f", "-a", "slot1_1"}})
		}, false},
		"the job has begun": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UID: 1000})
		}, false},
		"a plugin still runs": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 1001, Parent: 1000, Comm: "condor_starter"})
			f.Add(proctree.Process{PID: 4002, Parent: 1001, Comm: "plugin", UID: 1000})
		}, false},
		"it has changed its account": {func(_ fakeProc, p *proctree.Process, _ *Caller) {
			p.UIDs = &process.UIDs{Real: 1000, Effective: 1000, Saved: 100000, FileSystem: 1000}
		}, false},
		"the caller was started as another account": {func(_ fakeProc, p *proctree.Process, _ *Caller) {
			p.UIDs = &process.UIDs{Real: 1001, Effective: 1000, Saved: 1000, FileSystem: 1000}
		}, false},
		"the job has begun, and changed its account": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UID: 100000})
		}, false},
		"the job has begun, and runs a setuid program": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UIDs: &process.UIDs{Real: 0, Effective: 0, Saved: 1000}})
		}, false},
		"the job has begun, and became root in its cgroup": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", Cgroup: proctree.CgroupOf("slot1_1")})
		}, false},
		"the job has begun, and a process of HTCondor's ends": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 3998, Parent: 1000, Comm: "plugin"})
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UID: 1000})
			if err := os.Remove(filepath.Join(f.Root, "3998/status")); err != nil { // between two looks at it
				t.Error(err)
			}
		}, false},
		"a process of HTCondor's runs": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 1000, Parent: 900, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter",
				Args: []string{"condor_starter", "-f", "-local-name", "slot_type_101", "-a", "slot1_1"}, UIDs: &process.UIDs{Effective: 64, FileSystem: 64}})
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "condor_starter", UIDs: &process.UIDs{Effective: 64, FileSystem: 64}})
		}, true},
		"a child of the starter cannot be looked at": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UID: 1000})
			f.unreadable(t, "4002/stat")
		}, false},
		"the accounts of a child of the starter cannot be read": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job", UID: 1000})
			f.unreadable(t, "4002/status")
		}, false},
		"of a child of the starter the cgroup cannot be read": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 4002, Parent: 1000, Comm: "job"})
			f.unreadable(t, "4002/cgroup")
		}, false},
		"a job behind many copies of the starter": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 5000, Parent: 1000, Comm: "condor_starter"})
			for pid := 5001; pid <= 5000+2*maxAncestors; pid++ {
				f.Add(proctree.Process{PID: pid, Parent: pid - 1, Comm: "condor_starter"})
			}
		}, false},
		"a copy of the starter": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.Add(proctree.Process{PID: 5000, Parent: 1000, Comm: "condor_starter"})
			f.Add(proctree.Process{PID: 5001, Parent: 5000, Comm: "condor_starter"})
		}, true},
		"another job of the account runs": {func(f fakeProc, _ *proctree.Process, _ *Caller) {
			f.starter(1002, "slot1_2")
			f.Add(proctree.Process{PID: 4002, Parent: 1002, Comm: "job", UID: 1000})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeProc(t)
			f.Add(proctree.Process{PID: 900, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
			c := Caller{UID: 1000, PID: 4000, Started: proctree.StartOf(4000), Hook: true, Starter: f.starter(1000, "slot1_1")}
			p := ours
			tt.change(f, &p, &c)
			f.Add(p)
			if got := f.fs().IsHook(c, f.Program("/usr/libexec/gpuslot/gpuslot-start"), f.Program(program)); got != tt.want {
				t.Errorf("it is the hook: %t", got)
			}
		})
	}
}

// TestHookThatEndsMeanwhile: what was read of a process that has the hook's PID only now counts for nothing.
func TestHookThatEndsMeanwhile(t *testing.T) {
	f := newFakeProc(t)
	c := Caller{UID: 1000, PID: 4000, Started: proctree.StartOf(4000), Hook: true, Starter: f.starter(1000, "slot1_1")}
	p := proctree.Process{PID: c.PID, Parent: c.Starter.PID, Comm: "prepare", Exe: "/usr/libexec/gpuslot/gpuslot-condor", UID: c.UID}
	f.Add(p)
	f.Add(proctree.Process{PID: 4002, Parent: c.Starter.PID, Comm: "condor_starter"})
	wait := f.meanwhile(t, "4002/cgroup", func() {
		f.End(c.PID)
		p.Started = c.Started + 1
		f.Add(p)
	})
	if f.fs().IsHook(c, f.Program(p.Exe)) {
		t.Error("it is the hook")
	}
	wait()
}

// unreadable makes a file of /proc one that cannot be read, though it is there.
func (f fakeProc) unreadable(t *testing.T, name string) {
	name = filepath.Join(f.Root, name)
	if err := errors.Join(os.Remove(name), os.Symlink(name, name)); err != nil {
		t.Error(err)
	}
}
