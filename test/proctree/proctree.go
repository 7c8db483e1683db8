// Package proctree makes a directory that looks like /proc, for tests of what reads it. Start
// at New; Starter adds the processes of an HTCondor slot. CgroupMount is of this machine itself.
package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// Tree is a directory that looks like proc(5), of processes that the test
// makes and ends.
type Tree struct {
	t testing.TB
	// Root is the directory.
	Root string
}

// New makes a tree without processes, which ends with the test.
func New(t testing.TB) Tree { return Tree{t, t.TempDir()} }

// Process describes one process of a Tree.
type Process struct {
	PID, Parent int
	// Comm is the program's name. Exe is the file that runs, made below the tree's
	// root; none where it is empty.
	Comm, Exe string
	Args      []string
	// UID is its account: real, effective, saved and of the file system.
	UID uint32
	// UIDs are all four, where they differ from each other; UID counts where it is nil.
	UIDs *process.UIDs
	// Cgroup is its path in the unified hierarchy; that of the service condor where
	// it is empty.
	Cgroup string
	// State is the kernel's letter; S where it is empty.
	State string
	// Started is in clock ticks since boot; what StartOf returns where it is 0.
	Started uint64
	// Threads are those that are left; nil means the one with the process's number.
	Threads []Thread
}

// Thread is one of several threads of a Process.
type Thread struct {
	TID   int
	State string
	// Cgroup is the whole text of its cgroup file.
	Cgroup string
	// Opened is what descriptor 3 leads to; it is not open where this is empty.
	Opened string
}

// StartOf is when a process began whose start the test does not say, in clock ticks since boot:
// a higher PID no earlier than a lower one, and all within the first 10 s. So it lies in the
// past on a machine that booted a minute ago, too.
func StartOf(pid int) uint64 { return uint64(min(pid, 1000)) }

// Add makes a process, or changes the one with its PID.
func (f Tree) Add(p Process) {
	f.t.Helper()
	if p.State == "" {
		p.State = "S"
	}
	if p.Started == 0 {
		p.Started = StartOf(p.PID)
	}
	if p.Cgroup == "" {
		p.Cgroup = "/system.slice/condor.service"
	}
	if p.UIDs == nil {
		p.UIDs = &process.UIDs{Real: p.UID, Effective: p.UID, Saved: p.UID, FileSystem: p.UID}
	}
	dir := f.dir(p.PID)
	defer func(dir string) { // it belongs to the effective account, as in the kernel's
		if err := os.Lchown(dir, int(p.UIDs.Effective), int(p.UIDs.Effective)); err != nil && os.Geteuid() == 0 {
			f.t.Fatal(err)
		}
	}(dir)
	if _, missing := os.Lstat(dir); missing != nil {
		// As in the kernel's own tree, a reader finds a new process with all of its files.
		whole := dir
		dir += ".new"
		defer func() {
			if err := os.Rename(dir, whole); err != nil {
				f.t.Fatal(err)
			}
		}()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, th := range p.Threads {
		f.addThread(dir, p, th)
	}
	var cmdline []byte
	for _, a := range p.Args {
		cmdline = append(append(cmdline, a...), 0)
	}
	for name, text := range map[string]string{
		"stat": statLine(p.PID, p.State, p),
		"status": fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nUid:\t%d\t%d\t%d\t%d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n",
			p.Comm, p.UIDs.Real, p.UIDs.Effective, p.UIDs.Saved, p.UIDs.FileSystem),
		"comm":    p.Comm + "\n",
		"cmdline": string(cmdline),
		"cgroup":  "0::" + p.Cgroup + "\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o644), os.Rename(file+".new", file)); err != nil {
			f.t.Fatal(err)
		}
	}
	_ = os.Remove(filepath.Join(dir, "exe"))
	if p.Exe != "" {
		if err := os.Symlink(f.Program(p.Exe), filepath.Join(dir, "exe")); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f Tree) dir(pid int) string { return filepath.Join(f.Root, strconv.Itoa(pid)) }

func statLine(id int, state string, p Process) string {
	return fmt.Sprintf("%d (%s) %s %d 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 %d 0 %d 1 1 18446744073709551615 1 1 0\n",
		id, p.Comm, state, p.Parent, max(1, len(p.Threads)), p.Started)
}

func (f Tree) addThread(of string, p Process, th Thread) {
	f.t.Helper()
	dir := filepath.Join(of, "task", strconv.Itoa(th.TID))
	err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755)
	for name, text := range map[string]string{"stat": statLine(th.TID, th.State, p), "cgroup": th.Cgroup, "comm": p.Comm + "\n"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
	}
	if err == nil && th.Opened != "" {
		err = os.Symlink(th.Opened, filepath.Join(dir, "fd/3"))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// Program makes the file of a program, of root's or who runs the test.
func (f Tree) Program(name string) string {
	f.t.Helper()
	file := filepath.Join(f.Root, "files", name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if _, missing := os.Lstat(file); err == nil && missing != nil {
		err = os.WriteFile(file, nil, 0o755)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return file
}

// End removes a process.
func (f Tree) End(pid int) {
	f.t.Helper()
	ended := f.dir(pid) + ".ended"
	if err := os.Rename(f.dir(pid), ended); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	if err := os.RemoveAll(ended); err != nil {
		f.t.Fatal(err)
	}
}

// Startd is the PID of the startd that Starter adds.
const Startd = 900

// Starter adds a condor_starter of a slot, as a startd of 25.14.1 starts it.
func (f Tree) Starter(pid int, slot string) process.ID {
	if _, err := os.Lstat(filepath.Join(f.Root, strconv.Itoa(Startd))); err != nil {
		f.Add(Process{PID: Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
	}
	f.Add(Process{PID: pid, Parent: Startd, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter",
		Args: []string{"condor_starter", "-f", "-local-name", "slot_type_101", "-a", slot, "submit.example.org"}})
	return process.ID{PID: pid, Started: StartOf(pid)}
}

// CgroupOf is the cgroup of a slot's job, as HTCondor 25.14.1 makes it.
func CgroupOf(slot string) string {
	leaf := "_var_lib_condor_execute_" + slot + "@wn1.example.org"
	return "/htcondor/" + leaf + ".slice/" + leaf + ".scope"
}
