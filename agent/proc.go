package agent

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// procFS is a view of proc(5) that knows HTCondor's programs.
type procFS struct{ process.FS }

// starterSlot reads the slot from the command line of a condor_starter. Where
// GPUs have startds of their own it is told "slot1_1" by each of them: then the
// startd above it says whose, "slot1_1@gpu5a1e0c11". Startd is 0 where it is gone.
func (fs procFS) starterSlot(pid, startd int) (string, error) {
	args, err := fs.Args(pid)
	if err != nil {
		return "", err
	}
	slot, err := parseStarterArgs(args)
	if err != nil || startd == 0 {
		return slot, err
	}
	if args, err = fs.Args(startd); err != nil {
		return "", err
	}
	if name := parseStartdArgs(args); name != "" {
		slot = shortName(slot) + "@" + name
	}
	return slot, nil
}

// startds are the local names of the GPUs' startds that run in this node.
func (fs procFS) startds(trusted func(uint32) bool) []string {
	var names []string
	for _, pid := range fs.PIDs() {
		if program, err := fs.daemon(pid, trusted); err != nil || program != startdProgram || !fs.SameNamespace(pid) {
			continue
		}
		if _, err := fs.starterAbove(pid, trusted); err == nil {
			continue // a pilot's
		}
		args, err := fs.Args(pid)
		if name := parseStartdArgs(args); err == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hookedArgs finds in a starter's "-local-name slot_type_1" whether it has the hook.
func hookedArgs(args []string) bool {
	i := slices.Index(args, "-local-name")
	return i > 0 && i+1 < len(args) && condor.HasHook(args[i+1])
}

// parseStartdArgs finds the local name in "condor_startd -f -local-name
// gpu5a1e0c11 -sock startd_gpu5a1e0c11"; empty if it is none of a GPU's.
func parseStartdArgs(args []string) string {
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
	b, err := fs.Cgroup(pid)
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
	return cgroup.SlotIn(b), nil
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
func parseStarterArgs(args []string) (string, error) {
	for _, flag := range []string{"-slot-name", "-a"} {
		if i := slices.Index(args[min(1, len(args)):], flag) + 1; i > 0 && i+1 < len(args) && slotName.MatchString(args[i+1]) {
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
