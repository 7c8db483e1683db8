package agent

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Starter names the condor_starter that runs one job: the process, and the slot
// it was started for. It lives exactly as long as the job holds the slot.
type Starter struct {
	process.ID
	// Slot is the value of -a: "slot1_2".
	Slot string
}

// Caller is who asks, as the kernel says it.
type Caller struct {
	// UID and PID are the socket's peer credentials.
	UID uint32
	PID int
	// Hook: below a starter, but not in the cgroup of a slot; for an admission, the
	// PREPARE_JOB hook itself (see isHook). Otherwise a process of the job.
	Hook bool
	// Confirmed: the startd says the same of the slot as the caller.
	Confirmed bool
	// Starter runs the job. For a job process that left its parents behind
	// only the slot is known: PID is 0.
	Starter Starter
}

// errNoSlot is what a process outside any slot hears.
var errNoSlot = errors.New("the caller runs in no slot: neither its cgroup nor a condor_starter above it names one; only HTCondor's hooks and jobs may ask for a GPU")

// maxAncestors bounds the walk from a caller up to its starter. A hook is the
// starter's child; a site's chained hook adds a few shells.
const maxAncestors = 16

// identify finds the slot of a process: by its cgroup if it is a job's, and by
// the condor_starter above it (hooks run in the starter's cgroup,
// which names no slot). Both must agree where both are known.
func (fs procFS) identify(uid uint32, pid int, trusted func(uint32) bool) (Caller, error) {
	c := Caller{UID: uid, PID: pid}
	inCgroup, err := fs.cgroupSlot(pid)
	if err != nil {
		return c, fmt.Errorf("read the caller's cgroup: %w", err)
	}
	c.Hook = inCgroup == ""
	s, err := fs.starterAbove(pid, trusted)
	if c.Hook {
		c.Starter = s
		return c, err
	}
	if err != nil {
		// It left its parents behind; its cgroup it cannot leave.
		s = Starter{Slot: inCgroup}
	}
	if !sameSlot(s.Slot, inCgroup) {
		return c, fmt.Errorf("the caller's cgroup says %s, the condor_starter above it %s", inCgroup, s.Slot)
	}
	c.Starter = s
	return c, nil
}

// starterAbove finds the condor_starter above a process: the outermost one, because
// what a job starts stands below the node's own, a pilot's HTCondor too.
func (fs procFS) starterAbove(pid int, trusted func(uint32) bool) (Starter, error) {
	line, err := fs.ancestry(pid)
	if err != nil {
		return Starter{}, err
	}
	why := errNoSlot
	for i, p := range slices.Backward(line) {
		s, err := fs.starterAt(p, trusted)
		switch {
		case err == nil && fs.unchanged(line[:i+1]):
			return s, nil
		case err == nil:
			return Starter{}, errors.New("a process above the caller ended while the caller was being identified: ask again")
		case errors.Is(err, errSlotless):
			return s, err
		case !errors.Is(err, errNoDaemon):
			why = err
		}
	}
	return Starter{}, why
}

// belowStartd says whether a process was started by the startd itself, as
// STARTD_CRON's are, and not by a job.
func (fs procFS) belowStartd(pid int, trusted func(uint32) bool) bool {
	slot, err := fs.cgroupSlot(pid)
	if err != nil || slot != "" {
		return false
	}
	line, err := fs.ancestry(pid)
	if err != nil {
		return false
	}
	startd := false
	for _, p := range line {
		program, err := fs.daemon(p.PID, trusted)
		if err == nil && program == starterProgram {
			return false
		}
		startd = startd || err == nil && program == startdProgram
	}
	return startd && fs.unchanged(line)
}

// ancestry is a process with those above it, the process first, without PID 1 and
// at most maxAncestors of them.
func (fs procFS) ancestry(pid int) ([]process.Stat, error) {
	var line []process.Stat
	for len(line) < maxAncestors && (pid > 1 || len(line) == 0) {
		p, err := fs.Stat(pid)
		if err != nil {
			return nil, fmt.Errorf("walk up from the caller: %w", err)
		}
		line = append(line, p)
		pid = p.Parent
	}
	return line, nil
}

// unchanged says whether an ancestry is still the same. A parent that ended leaves
// its children to another, so each PID was that parent's while it was looked at.
func (fs procFS) unchanged(line []process.Stat) bool {
	for _, was := range line {
		now, err := fs.Stat(was.PID)
		if err != nil || now.Ended() || now.ID != was.ID || now.Parent != was.Parent {
			return false
		}
	}
	return true
}

// HTCondor's programs, by the names of their files.
const (
	starterProgram = "condor_starter"
	startdProgram  = "condor_startd"
)

// errNoDaemon says that a process runs none of HTCondor's programs.
var errNoDaemon = errors.New("not a program of HTCondor's")

// daemon says which of HTCondor's programs a process runs as a daemon of this node.
// Its account and the file of its program decide, because anybody can take a name:
// the real uid is root's ("Uid: 0 <condor> 0 <condor>" on 25.14.1) or, in a personal
// pool, the agent's own, and nobody else can write the file.
func (fs procFS) daemon(pid int, trusted func(uint32) bool) (program string, err error) {
	exe, err := fs.Exe(pid)
	if program = path.Base(exe); err != nil || program != starterProgram && program != startdProgram {
		return "", errNoDaemon // kernel threads have no file
	}
	uids, err := fs.UIDs(pid)
	if err != nil {
		return "", err
	}
	if !trusted(uids.Real) {
		return "", fmt.Errorf("process %d above the caller runs %s as uid %d, which is not this node's HTCondor: %w", pid, foreign.Clip(exe), uids.Real, errNoSlot)
	}
	file, err := fs.ExeFile(pid)
	if err != nil {
		return "", fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	if !trusted(file.Uid) || file.Mode&0o022 != 0 {
		return "", fmt.Errorf("process %d above the caller runs %s, which others than root can change (uid %d, mode %#o): "+
			"chown root and chmod go-w that file: %w", pid, foreign.Clip(exe), file.Uid, file.Mode&0o7777, errNoSlot)
	}
	return program, nil
}

// starterAt is the starter that a process is: a daemon whose parent is a startd. One
// that lost its startd runs on below PID 1 for a while; only root's counts then.
func (fs procFS) starterAt(p process.Stat, trusted func(uint32) bool) (Starter, error) {
	orphan := p.Parent <= 1
	if orphan {
		trusted = starterUID(0)
	}
	program, err := fs.daemon(p.PID, trusted)
	if err != nil {
		return Starter{}, err
	}
	if program != starterProgram {
		return Starter{}, errNoDaemon
	}
	startd := 0
	if !orphan {
		if above, err := fs.daemon(p.Parent, trusted); err != nil || above != startdProgram {
			return Starter{}, fmt.Errorf("process %d above the caller runs condor_starter, but its parent %d is no condor_startd: %w", p.PID, p.Parent, errNoSlot)
		}
		startd = p.Parent
	}
	slot, err := fs.starterSlot(p.PID, startd)
	return Starter{ID: p.ID, Slot: slot}, err
}

// starterUID says whose starters an agent trusts: root's, and its own account's
// where it is not root itself (a personal pool: one trust domain).
func starterUID(agent uint32) func(uint32) bool {
	return func(uid uint32) bool { return uid == 0 || uid == agent }
}
