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
	// State is the kernel's letter: R, S, D, T, t, Z, X …
	State byte
	// Comm is the first 15 bytes of the program's name; a process may change it.
	Comm string
}

// gone says that the process has ended, though its entry may still be there.
func (p process) gone() bool { return p.State == 'Z' || p.State == 'X' || p.State == 'x' }

func (fs procFS) read(pid int, name string) ([]byte, error) {
	return os.ReadFile(path.Join(fs.root, strconv.Itoa(pid), name))
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
	return parseRealUID(b)
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
// startd above it says whose, "slot1_1@gpu5a1e0c11".
func (fs procFS) starterSlot(pid int) (string, error) {
	b, err := fs.read(pid, "cmdline")
	if err != nil {
		return "", err
	}
	slot, err := parseStarterArgs(b)
	if err != nil {
		return "", err
	}
	if name := fs.startdAbove(pid); name != "" {
		slot = shortName(slot) + "@" + name
	}
	return slot, nil
}

// startdAbove is the local name of the startd that started a condor_starter,
// if it is a GPU's own. The starter is known to be HTCondor's, and so then is
// its parent.
func (fs procFS) startdAbove(starter int) string {
	p, err := fs.process(starter)
	if err != nil {
		return ""
	}
	above, err := fs.process(p.Parent)
	if err != nil || above.Comm != startdProgram {
		return ""
	}
	b, err := fs.read(above.PID, "cmdline")
	if err != nil {
		return ""
	}
	return parseStartdArgs(b)
}

// startds are the local names of the GPUs' startds that run in this node.
func (fs procFS) startds(trusted func(uint32) bool) []string {
	var names []string
	for _, pid := range fs.pids() {
		p, err := fs.process(pid)
		if err != nil || p.gone() || p.Comm != startdProgram || fs.isHTCondor(p, trusted) != nil || !fs.sameNamespace(pid) {
			continue
		}
		b, err := fs.read(pid, "cmdline")
		if name := parseStartdArgs(b); err == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
	b, err := fs.read(pid, "cgroup")
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
	return parseCgroupSlot(b), nil
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
	return process{PID: pid, Parent: parent, Started: started, State: fields[0][0], Comm: string(b[open+1 : end])}, nil
}

func parseRealUID(b []byte) (uint32, error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) != 4 {
			break
		}
		uid, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			break
		}
		return uint32(uid), nil
	}
	return 0, errors.New("process status has no Uid line with four numbers")
}

// slotName is what HTCondor calls slots: slot1, slot1_2, with the startd's name
// and the host behind it where there is room ("slot1_2@gpu0@host").
var slotName = regexp.MustCompile(`^slot[0-9]{1,6}(?:_[0-9]{1,6})?(?:@[A-Za-z0-9._-]{1,200}){0,2}$`)

// parseStarterArgs finds the value of -a in "condor_starter -f -local-name
// slot_type_1 -a slot1_1 <submit host>" (as run by a startd of 25.14.1).
func parseStarterArgs(b []byte) (string, error) {
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	for i := 1; i+1 < len(args); i++ {
		if args[i] != "-a" {
			continue
		}
		if !slotName.MatchString(args[i+1]) {
			return "", fmt.Errorf("condor_starter runs with -a %q, which is not a slot's name", clip(args[i+1]))
		}
		return args[i+1], nil
	}
	return "", errors.New("condor_starter runs without -a, so its slot is not known")
}

// cgroupSlotName is the slot in a cgroup's path, as HTCondor 23 to 25 builds
// it: ".../<EXECUTE with _ for />_slot1_2@host.slice/...scope" (23.9: without
// the suffix).
var cgroupSlotName = regexp.MustCompile(`_(slot[0-9]{1,6}(?:_[0-9]{1,6})?@[A-Za-z0-9._@-]{1,250}?)(?:\.slice|\.scope)?(?:/|$)`)

// CgroupSlot is the slot, with its host, that the text of a /proc/<pid>/cgroup
// names; empty if it names none.
func CgroupSlot(text []byte) string { return parseCgroupSlot(text) }

// parseCgroupSlot takes the first match of the unified hierarchy's path, then
// of any other: a job that may make cgroups of its own makes them further down.
// A path cannot hold a newline: the kernel refuses such a cgroup.
func parseCgroupSlot(b []byte) string {
	var other string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		id, rest, ok := strings.Cut(line, ":")
		_, cgroup, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		m := cgroupSlotName.FindStringSubmatch(cgroup)
		if m == nil {
			continue
		}
		if id == "0" {
			return m[1]
		}
		if other == "" {
			other = m[1]
		}
	}
	return other
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
