package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hookProgram is what the generated configuration names as the hook.
const hookProgram = "gpuslot-condor"

// isHook says whether a caller is HTCondor's PREPARE_JOB hook, by what a job cannot
// change. The starter runs the hook as its own child, before the job's first
// process and in no slot's cgroup. A file transfer plugin runs below a copy of the
// starter, a script of the job (PreCmd) where no hook is, or after it. The slot
// type's name in the starter's arguments says whether there is a hook: a job
// without GPUs has none. What is not the hook is no liar: a site's own hook that
// calls ours is not the starter's child. The startd confirms what such a caller says.
func (fs procFS) isHook(c Caller, program string, trusted func(uint32) bool) bool {
	if !c.Hook || c.Starter.PID == 0 {
		return false
	}
	p, err := fs.Stat(c.PID)
	if err != nil || p.Parent != c.Starter.PID || !fs.hasHook(c.Starter.PID) {
		return false
	}
	return fs.executes(c.PID, program, trusted) && !fs.othersOf(c, c.Starter.PID, 0)
}

// hasHook reads from a starter's arguments whether its slot type has the hook.
func (fs procFS) hasHook(starter int) bool {
	args, err := fs.Args(starter)
	return err == nil && hookedArgs(args)
}

// executes says whether a process runs this very program, which no job can write.
func (fs procFS) executes(pid int, program string, trusted func(uint32) bool) bool {
	its, err := fs.ExeFile(pid)
	if err != nil {
		return false
	}
	var ours unix.Stat_t
	if err := unix.Stat(program, &ours); err != nil || its.Dev != ours.Dev || its.Ino != ours.Ino {
		return false
	}
	return trusted(ours.Uid) && ours.Mode&0o022 == 0
}

// othersOf says whether another process of the caller's account is below a
// process: then the job has begun. Copies of the starter are looked into.
func (fs procFS) othersOf(c Caller, parent, depth int) bool {
	if depth > maxAncestors {
		return true
	}
	for _, pid := range fs.Children(parent) {
		p, err := fs.Stat(pid)
		if err != nil || p.Parent != parent || pid == c.PID {
			continue // it ended, or is another's
		}
		uids, err := fs.UIDs(pid)
		if err != nil {
			continue
		}
		if uids.Real == c.UID || fs.othersOf(c, pid, depth+1) {
			return true
		}
	}
	return false
}

// hookAsked is what a job's processes hear, and a second hook.
func hookAsked(s Starter) string {
	return fmt.Sprintf("the hook of %s has asked for this job, and only its first question is answered: use the environment that the job was started with", s.Slot)
}
