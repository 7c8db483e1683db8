package starter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/cgroup"
)

// starterSlot reads the slot from the command line of a condor_starter. Where
// GPUs have startds of their own each of them gives it "slot1_1": then the
// startd above it says whose, "slot1_1@gpu5a1e0c11". Startd is 0 where it is gone.
func (n Node) starterSlot(pid, startd int) (string, error) {
	args, err := n.Args(pid)
	if err != nil {
		return "", err
	}
	slot, err := parseStarterArgs(args)
	if err != nil || startd == 0 {
		return slot, err
	}
	if args, err = n.Args(startd); err != nil {
		return "", err
	}
	if name := parseStartdArgs(args); name != "" {
		slot = condor.SlotName(slot) + "@" + name
	}
	return slot, nil
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

// slotName is what HTCondor calls slots: slot1, slot1_2, with the startd's name
// and the host behind it where there is room ("slot1_2@gpu0@host").
var slotName = regexp.MustCompile(`^` + cgroup.Name + `(?:@[A-Za-z0-9._-]{1,200}){0,2}$`)

// ErrSlotless says that a starter of HTCondor's own does not show its slot.
var ErrSlotless = errors.New("the slot of a condor_starter is not known, so no job can start below it: " +
	"remove STARTER_LOG_NAME_APPEND from HTCondor's configuration, or update HTCondor to 24.0.1 or newer")

// parseStarterArgs finds the slot in "condor_starter -f -local-name slot_type_1 -a
// slot1_1 <submit host>" (as run by a startd of 25.14.1). What follows -a is for the
// name of the log; where that is not the slot, -slot-name has it (24.0.1 on).
func parseStarterArgs(args []string) (string, error) {
	for _, flag := range []string{"-slot-name", "-a"} {
		i := slices.Index(args[min(1, len(args)):], flag) + 1
		if i > 0 && i+1 < len(args) && slotName.MatchString(args[i+1]) {
			return args[i+1], nil
		}
	}
	return "", fmt.Errorf("%w (neither -slot-name nor -a is a slot)", ErrSlotless)
}

// SameSlot compares a slot's short and long names: a starter is given
// "slot1_2", its cgroup says "slot1_2@host".
func SameSlot(a, b string) bool {
	if condor.SlotName(a) != condor.SlotName(b) {
		return false // of several startds
	}
	shortA, restA, longA := strings.Cut(a, "@")
	shortB, restB, longB := strings.Cut(b, "@")
	same := !longA || !longB || restA == restB ||
		strings.HasPrefix(restA, restB+"@") || strings.HasPrefix(restB, restA+"@")
	return shortA == shortB && same
}
