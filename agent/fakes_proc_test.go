package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// fakeProc is a directory that looks like proc(5), of processes that the test
// makes and ends.
type fakeProc struct {
	t    testing.TB
	root string
}

func newFakeProc(t testing.TB) fakeProc { return fakeProc{t, t.TempDir()} }

func (f fakeProc) fs() procFS { return procFS{f.root} }

// proc describes one process of a fakeProc.
type proc struct {
	pid, parent int
	comm, exe   string
	args        []string
	uid         uint32
	cgroup      string
	state       string
	started     uint64
}

func (f fakeProc) add(p proc) {
	f.t.Helper()
	if p.state == "" {
		p.state = "S"
	}
	if p.started == 0 {
		p.started = uint64(p.pid) * 100
	}
	if p.cgroup == "" {
		p.cgroup = "/system.slice/condor.service"
	}
	dir := filepath.Join(f.root, strconv.Itoa(p.pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	var cmdline []byte
	for _, a := range p.args {
		cmdline = append(append(cmdline, a...), 0)
	}
	for name, text := range map[string]string{
		"stat": fmt.Sprintf("%d (%s) %s %d 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 1 1 18446744073709551615 1 1 0\n",
			p.pid, p.comm, p.state, p.parent, p.started),
		"status":  fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\n", p.comm, p.uid, p.uid, p.uid, p.uid),
		"cmdline": string(cmdline),
		"cgroup":  "0::" + p.cgroup + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	_ = os.Remove(filepath.Join(dir, "exe"))
	if p.exe != "" {
		if err := os.Symlink(p.exe, filepath.Join(dir, "exe")); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f fakeProc) end(pid int) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, strconv.Itoa(pid))); err != nil {
		f.t.Fatal(err)
	}
}

// starter adds a condor_starter of a slot, as a startd of 25.14.1 starts it.
func (f fakeProc) starter(pid int, slot string) Starter {
	f.add(proc{pid: pid, parent: 900, comm: "condor_starter", exe: "/usr/sbin/condor_starter",
		args: []string{"condor_starter", "-f", "-local-name", "slot_type_1", "-a", slot, "submit.example.org"}})
	return Starter{PID: pid, Started: uint64(pid) * 100, Slot: slot}
}

const (
	slotCgroup = "/htcondor/_var_lib_condor_execute_%s@wn1.example.org.slice/_var_lib_condor_execute_%s@wn1.example.org.scope"
)

func cgroupOf(slot string) string { return fmt.Sprintf(slotCgroup, slot, slot) }
