package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// fakeProc is a directory that looks like proc(5), of processes that the test
// makes and ends.
type fakeProc struct {
	t    testing.TB
	root string
}

func newFakeProc(t testing.TB) fakeProc { return fakeProc{t, t.TempDir()} }

func (f fakeProc) fs() procFS { return procFS{process.FS{Root: f.root}} }

// proc describes one process of a fakeProc.
type proc struct {
	pid, parent int
	comm, exe   string
	args        []string
	uid         uint32
	cgroup      string
	state       string
	started     uint64
	// threads are those that run; nil means the one with the process's number.
	threads []thread
}

// thread is one of several of a fakeProc's process.
type thread struct {
	tid    int
	state  string
	cgroup string
	opened string // by descriptor 3
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
	for _, th := range p.threads {
		f.addThread(p, th)
	}
	var cmdline []byte
	for _, a := range p.args {
		cmdline = append(append(cmdline, a...), 0)
	}
	for name, text := range map[string]string{
		"stat":    statLine(p.pid, p.state, p),
		"status":  fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\n", p.comm, p.uid, p.uid, p.uid, p.uid),
		"comm":    p.comm + "\n",
		"cmdline": string(cmdline),
		"cgroup":  "0::" + p.cgroup + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	_ = os.Remove(filepath.Join(dir, "exe"))
	if p.exe != "" {
		if err := os.Symlink(f.program(p.exe), filepath.Join(dir, "exe")); err != nil {
			f.t.Fatal(err)
		}
	}
}

func statLine(id int, state string, p proc) string {
	return fmt.Sprintf("%d (%s) %s %d 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 %d 0 %d 1 1 18446744073709551615 1 1 0\n",
		id, p.comm, state, p.parent, max(1, len(p.threads)), p.started)
}

func (f fakeProc) addThread(p proc, th thread) {
	f.t.Helper()
	dir := filepath.Join(f.root, strconv.Itoa(p.pid), "task", strconv.Itoa(th.tid))
	err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755)
	for name, text := range map[string]string{"stat": statLine(th.tid, th.state, p), "cgroup": th.cgroup, "comm": p.comm + "\n"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
	}
	if err == nil && th.opened != "" {
		err = os.Symlink(th.opened, filepath.Join(dir, "fd/3"))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// program makes the file of a program, of root's or who runs the test.
func (f fakeProc) program(name string) string {
	f.t.Helper()
	file := filepath.Join(f.root, "files", name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if _, missing := os.Lstat(file); err == nil && missing != nil {
		err = os.WriteFile(file, nil, 0o755)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return file
}

func (f fakeProc) end(pid int) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, strconv.Itoa(pid))); err != nil {
		f.t.Fatal(err)
	}
}

// startdPID is the PID of the startd that starter adds.
const startdPID = 900

// starter adds a condor_starter of a slot, as a startd of 25.14.1 starts it.
func (f fakeProc) starter(pid int, slot string) Starter {
	if _, err := f.fs().Stat(startdPID); err != nil {
		f.add(proc{pid: startdPID, parent: 1, comm: "condor_startd", exe: "/usr/sbin/condor_startd"})
	}
	f.add(proc{pid: pid, parent: startdPID, comm: "condor_starter", exe: "/usr/sbin/condor_starter",
		args: []string{"condor_starter", "-f", "-local-name", "slot_type_101", "-a", slot, "submit.example.org"}})
	return Starter{ID: process.ID{PID: pid, Started: uint64(pid) * 100}, Slot: slot}
}

const (
	slotCgroup = "/htcondor/_var_lib_condor_execute_%s@wn1.example.org.slice/_var_lib_condor_execute_%s@wn1.example.org.scope"
)

func cgroupOf(slot string) string { return fmt.Sprintf(slotCgroup, slot, slot) }
