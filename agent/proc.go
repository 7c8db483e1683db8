package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor"
)

// procFS is a view of proc(5); tests give it a directory of fixtures. Nothing
// in it that the owner of a process can write (environ, argv of a foreign
// root process, files) is ever trusted beyond what the kernel says.
type procFS struct{ root string }

// process is one line of /proc/<pid>/stat, as far as it is needed.
type process struct {
	PID, Parent int
	// Started is the start time in clock ticks since boot: with the PID it
	// names one process for good.
	Started uint64
	// State is the kernel's letter of the first thread: R, S, D, T, t, Z, X …
	State byte
	// Threads counts those that are left. A process whose first thread has ended
	// is in state Z and runs on in the others.
	Threads int
	// Comm is the first 15 bytes of the program's name; a process may change it.
	Comm string
}

// gone says that the process has ended, though its entry may still be there.
func (p process) gone() bool {
	return p.State == 'X' || p.State == 'x' || p.State == 'Z' && p.Threads <= 1
}

func (fs procFS) read(pid int, name string) ([]byte, error) {
	return os.ReadFile(path.Join(fs.root, strconv.Itoa(pid), name))
}

// readThread reads a file of a thread that runs. A first thread that has ended
// shows no mounts and no cgroup of version 1, and keeps the cgroup of version 2
// that it died in while the process is moved to another.
func (fs procFS) readThread(pid int, name string) ([]byte, error) {
	return os.ReadFile(path.Join(fs.thread(pid), name))
}

// thread is the directory of the first thread of a process that runs; of a
// process that has ended, or of none, that of the process.
func (fs procFS) thread(pid int) string {
	dir := path.Join(fs.root, strconv.Itoa(pid))
	if p, err := fs.process(pid); err != nil || p.State != 'Z' || p.gone() {
		return dir
	}
	tasks, _ := os.ReadDir(path.Join(dir, "task")) // without it nothing is known of the threads
	for _, t := range tasks {
		task := path.Join(dir, "task", t.Name())
		b, err := os.ReadFile(path.Join(task, "stat"))
		if err != nil {
			continue // it has ended
		}
		if p, err := parseStat(b); err == nil && p.State != 'Z' && p.State != 'X' && p.State != 'x' {
			return task
		}
	}
	return dir
}

// readSelf reads a file about the agent itself.
func (fs procFS) readSelf(name string) ([]byte, error) {
	return os.ReadFile(path.Join(fs.root, "self", name))
}

// process reads /proc/<pid>/stat.
func (fs procFS) process(pid int) (process, error) {
	b, err := fs.read(pid, "stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(b)
}

// alive says whether the very process that had this start time still runs.
func (fs procFS) alive(pid int, started uint64) bool {
	p, err := fs.process(pid)
	return err == nil && p.Started == started && !p.gone()
}

// realUID reads the first number of the Uid: line, which a set-uid program
// does not change and an unprivileged process cannot.
func (fs procFS) realUID(pid int) (uint32, error) {
	b, err := fs.read(pid, "status")
	if err != nil {
		return 0, err
	}
	uid, _, err := parseUIDs(b)
	return uid, err
}

// exe is the path of the program that runs; a package upgrade under a running
// program adds " (deleted)" to it.
func (fs procFS) exe(pid int) (string, error) {
	s, err := os.Readlink(path.Join(fs.root, strconv.Itoa(pid), "exe"))
	return strings.TrimSuffix(s, " (deleted)"), err
}

// sameNamespace says whether a process is in the agent's own PID namespace, as
// the node's startd and its starters are.
func (fs procFS) sameNamespace(pid int) bool {
	own, errOwn := os.Readlink(path.Join(fs.root, "self/ns/pid"))
	its, err := os.Readlink(path.Join(fs.root, strconv.Itoa(pid), "ns/pid"))
	return errOwn != nil || err == nil && own == its
}

// starterSlot reads the slot from the command line of a condor_starter. Where
// GPUs have startds of their own it is told "slot1_1" by each of them: then the
// startd above it says whose, "slot1_1@gpu5a1e0c11". Startd is 0 where it is gone.
func (fs procFS) starterSlot(pid, startd int) (string, error) {
	b, err := fs.read(pid, "cmdline")
	if err != nil {
		return "", err
	}
	slot, err := parseStarterArgs(b)
	if err != nil || startd == 0 {
		return slot, err
	}
	if b, err = fs.read(startd, "cmdline"); err != nil {
		return "", err
	}
	if name := parseStartdArgs(b); name != "" {
		slot = shortName(slot) + "@" + name
	}
	return slot, nil
}

// startds are the local names of the GPUs' startds that run in this node.
func (fs procFS) startds(trusted func(uint32) bool) []string {
	var names []string
	for _, pid := range fs.pids() {
		if program, err := fs.daemon(pid, trusted); err != nil || program != startdProgram || !fs.sameNamespace(pid) {
			continue
		}
		if _, err := fs.starterAbove(pid, trusted); err == nil {
			continue // a pilot's
		}
		b, err := fs.read(pid, "cmdline")
		if name := parseStartdArgs(b); err == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hookedArgs finds in a starter's "-local-name slot_type_1" whether it has the hook.
func hookedArgs(b []byte) bool {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	i := slices.Index(args, "-local-name")
	return i > 0 && i+1 < len(args) && condor.HasHook(args[i+1])
}

// parseStartdArgs finds the local name in "condor_startd -f -local-name
// gpu5a1e0c11 -sock startd_gpu5a1e0c11"; empty if it is none of a GPU's.
func parseStartdArgs(b []byte) string {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	for i := 1; i+1 < len(args); i++ {
		if args[i] == "-local-name" && condor.IsStartd(args[i+1]) {
			return args[i+1]
		}
	}
	return ""
}

// userManager is the cgroup of a user's own service manager, which systemd
// delegates to the user.
var userManager = regexp.MustCompile(`/user@([0-9]{1,10})\.service(?:/|\n|$)`)

// cgroup reads /proc/<pid>/cgroup. Below a service manager of another account
// than the agent's names are that account's choice and no word of HTCondor's:
// such a process counts as in no cgroup.
func (fs procFS) cgroup(pid int) ([]byte, error) {
	b, err := fs.readThread(pid, "cgroup")
	if err != nil {
		return nil, err
	}
	for _, m := range userManager.FindAllSubmatch(b, -1) {
		if string(m[1]) != strconv.Itoa(os.Getuid()) {
			return nil, nil
		}
	}
	return b, nil
}

// cgroupSlot is the slot whose cgroup the process is in; empty if in none.
func (fs procFS) cgroupSlot(pid int) (string, error) {
	b, err := fs.cgroup(pid)
	if err != nil {
		return "", err
	}
	return condor.CgroupSlot(b), nil
}

// pids are the processes there are now, in ascending order.
func (fs procFS) pids() []int {
	d, err := os.Open(fs.root)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // a part is better than nothing
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// parseStat reads "pid (comm) state ppid …"; comm may hold spaces and
// parentheses, so it ends at the last one (proc(5)). Field 22 is the start time.
func parseStat(b []byte) (process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return process{}, errors.New("process status line has no program name")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	fields := strings.Fields(string(b[end+1:]))
	if err != nil || pid < 1 || len(fields) < 20 || len(fields[0]) != 1 {
		return process{}, errors.New("process status line is cut short")
	}
	parent, errP := strconv.Atoi(fields[1])
	started, errS := strconv.ParseUint(fields[19], 10, 64)
	if errP != nil || parent < 0 || errS != nil {
		return process{}, errors.New("process status line has no parent or start time")
	}
	threads, errT := strconv.Atoi(fields[17])
	if errT != nil || threads < 0 {
		return process{}, errors.New("process status line has no number of threads")
	}
	return process{PID: pid, Parent: parent, Started: started, State: fields[0][0], Threads: threads, Comm: string(b[open+1 : end])}, nil
}

// parseUIDs reads the real and the effective uid.
func parseUIDs(b []byte) (realUID, effective uint32, err error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) != 4 {
			break
		}
		r, errR := strconv.ParseUint(f[0], 10, 32)
		e, errE := strconv.ParseUint(f[1], 10, 32)
		if errR != nil || errE != nil {
			break
		}
		return uint32(r), uint32(e), nil
	}
	return 0, 0, errors.New("process status has no Uid line with four numbers")
}

// slotName is what HTCondor calls slots: slot1, slot1_2, with the startd's name
// and the host behind it where there is room ("slot1_2@gpu0@host").
var slotName = regexp.MustCompile(`^slot[0-9]{1,6}(?:_[0-9]{1,6})?(?:@[A-Za-z0-9._-]{1,200}){0,2}$`)

// errSlotless says that a starter of HTCondor's own does not show its slot.
var errSlotless = errors.New("the slot of a condor_starter is not known, so no job can start below it: " +
	"remove STARTER_LOG_NAME_APPEND from HTCondor's configuration, or update HTCondor to 24.0.1 or newer")

// parseStarterArgs finds the slot in "condor_starter -f -local-name slot_type_1 -a
// slot1_1 <submit host>" (as run by a startd of 25.14.1). What follows -a is for the
// name of the log; where that is not the slot, -slot-name has it (24.0.1 on).
func parseStarterArgs(b []byte) (string, error) {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	for _, flag := range []string{"-slot-name", "-a"} {
		if i := slices.Index(args[1:], flag) + 1; i > 0 && i+1 < len(args) && slotName.MatchString(args[i+1]) {
			return args[i+1], nil
		}
	}
	return "", fmt.Errorf("%w (neither -slot-name nor -a is a slot)", errSlotless)
}

// sameSlot compares a slot's short and long names: a starter is told
// "slot1_2", its cgroup says "slot1_2@host".
func sameSlot(a, b string) bool {
	if shortName(a) != shortName(b) {
		return false // of several startds
	}
	shortA, restA, longA := strings.Cut(a, "@")
	shortB, restB, longB := strings.Cut(b, "@")
	return shortA == shortB && (!longA || !longB || restA == restB || strings.HasPrefix(restA, restB+"@") || strings.HasPrefix(restB, restA+"@"))
}
