package agent

import (
	"os"
	"testing"
)

// TestIsHook: by kernel facts alone.
func TestIsHook(t *testing.T) {
	const program = "/usr/libexec/gpuslot/gpuslot-condor"
	ours := proc{pid: 4000, parent: 1000, comm: "prepare", exe: program, uid: 1000}
	for name, tt := range map[string]struct {
		change func(f fakeProc, p *proc, c *Caller)
		want   bool
	}{
		"the hook":                   {func(fakeProc, *proc, *Caller) {}, true},
		"a process of the job":       {func(_ fakeProc, _ *proc, c *Caller) { c.Hook = false }, false},
		"below a hook of the site's": {func(_ fakeProc, p *proc, _ *Caller) { p.parent = 3999 }, false},
		"it is gone":                 {func(_ fakeProc, p *proc, _ *Caller) { p.pid = 4001 }, false},
		"another program":            {func(_ fakeProc, p *proc, _ *Caller) { p.exe = "/usr/bin/python3" }, false},
		"a program that anybody may write": {func(f fakeProc, _ *proc, _ *Caller) {
			if err := os.Chmod(f.program(program), 0o777); err != nil {
				t.Error(err)
			}
		}, false},
		"a file transfer plugin, below a copy of the starter": {func(f fakeProc, p *proc, _ *Caller) {
			f.add(proc{pid: 1001, parent: 1000, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: []string{"condor_starter", "-a", "slot1_1"}})
			p.parent = 1001
		}, false},
		"the starter of a job without GPUs": {func(f fakeProc, _ *proc, _ *Caller) {
			f.add(proc{pid: 1000, parent: 900, comm: "condor_starter", args: []string{"condor_starter", "-f", "-local-name", "slot_type_502", "-a", "slot1_1"}})
		}, false},
		"a starter without a slot type": {func(f fakeProc, _ *proc, _ *Caller) {
			f.add(proc{pid: 1000, parent: 900, comm: "condor_starter", args: []string{"condor_starter", "-f", "-a", "slot1_1"}})
		}, false},
		"the job has begun": {func(f fakeProc, _ *proc, _ *Caller) {
			f.add(proc{pid: 4002, parent: 1000, comm: "job", uid: 1000})
		}, false},
		"a plugin still runs": {func(f fakeProc, _ *proc, _ *Caller) {
			f.add(proc{pid: 1001, parent: 1000, comm: "condor_starter"})
			f.add(proc{pid: 4002, parent: 1001, comm: "plugin", uid: 1000})
		}, false},
		"another job of the account runs": {func(f fakeProc, _ *proc, _ *Caller) {
			f.starter(1002, "slot1_2")
			f.add(proc{pid: 4002, parent: 1002, comm: "job", uid: 1000})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeProc(t)
			f.add(proc{pid: 900, parent: 1, comm: "condor_startd", exe: "/usr/sbin/condor_startd"})
			c := Caller{UID: 1000, PID: 4000, Hook: true, Starter: f.starter(1000, "slot1_1")}
			p := ours
			tt.change(f, &p, &c)
			f.add(p)
			if got := f.fs().isHook(c, f.program(program), rootsOwn); got != tt.want {
				t.Errorf("it is the hook: %t", got)
			}
		})
	}
}
