package starter

import (
	"golang.org/x/sys/unix"
)

// IsHook says whether a caller is HTCondor's PREPARE_JOB hook, by what a job cannot
// change. The starter runs the hook as its own child, before the job's first
// process and in no slot's cgroup. A file transfer plugin runs below a copy of the
// starter, a script of the job (PreCmd) where no hook is, or after it. The slot
// type's name in the starter's arguments says whether there is a hook: a job
// without GPUs has none. A caller that is not the hook need not lie: a site's own hook
// that calls ours is not the starter's child. The startd confirms what such a caller says.
func (n Node) IsHook(c Caller, program string) bool {
	if !c.Hook || c.Starter.PID == 0 {
		return false
	}
	p, err := n.Stat(c.PID)
	if err != nil || p.Parent != c.Starter.PID || !n.hasHook(c.Starter.PID) {
		return false
	}
	return !n.othersOf(c, c.Starter.PID, 0) && n.executes(c.PID, program)
}

// hasHook reads from a starter's arguments whether its slot type has the hook.
func (n Node) hasHook(starter int) bool {
	args, err := n.Args(starter)
	return err == nil && hookedArgs(args)
}

// executes says whether a process runs this very program, which no job can write.
func (n Node) executes(pid int, program string) bool {
	its, err := n.ExeFile(pid)
	if err != nil {
		return false
	}
	var ours unix.Stat_t
	if err := unix.Stat(program, &ours); err != nil || its.Dev != ours.Dev || its.Inode != ours.Ino {
		return false
	}
	return n.trusts(ours.Uid) && ours.Mode&0o022 == 0
}

// othersOf says whether another process of the caller's account is below a
// process: then the job has begun. Copies of the starter are looked into.
func (n Node) othersOf(c Caller, parent, depth int) bool {
	if depth > maxAncestors {
		return true
	}
	for _, pid := range n.Children(parent) {
		p, err := n.Stat(pid)
		if err != nil || p.Parent != parent || pid == c.PID {
			continue // it ended, or is another's
		}
		uids, err := n.UIDs(pid)
		if err != nil {
			continue
		}
		if uids.Real == c.UID || n.othersOf(c, pid, depth+1) {
			return true
		}
	}
	return false
}
