package starter

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// IsHook says whether a caller is HTCondor's PREPARE_JOB hook, by what a job cannot
// change. The starter runs the hook as its own child, before the job's first
// process and in no slot's cgroup. The hook has one account; a process that changed its own by a
// setuid program may have several. A file transfer plugin runs below a copy of the
// starter, a script of the job (PreCmd) where no hook is, or after it. The slot
// type's name in the starter's arguments says whether there is a hook: a job
// without GPUs has none. A caller that is not the hook need not lie: a site's own hook
// that calls ours is not the starter's child. The startd confirms what such a caller says.
func (n Node) IsHook(c Caller, programs ...string) bool {
	is, err := forCaller(n, c.UID, func(n Node) (bool, error) { return n.isHook(c, programs), nil })
	return is && err == nil
}

func (n Node) isHook(c Caller, programs []string) bool {
	p, err := n.Stat(c.PID)
	if err != nil || !c.Hook || c.Starter.PID == 0 || p.Started != c.Started || p.Parent != c.Starter.PID {
		return false
	}
	if args, err := n.Args(c.Starter.PID); err != nil || !hookedArgs(args) {
		return false
	}
	uids, err := n.UIDs(c.PID)
	if err != nil || uids != (process.UIDs{Real: c.UID, Effective: c.UID, Saved: c.UID, FileSystem: c.UID}) {
		return false
	}
	starter, err := n.UIDs(c.Starter.PID)
	return err == nil && !n.jobBelow(c, starter, c.Starter.PID, 0) && n.executes(c.PID, programs) &&
		n.Unchanged([]process.Stat{p}) // else another process has the PID
}

// executes says whether a process runs one of these very programs, which no job can write.
func (n Node) executes(pid int, programs []string) bool {
	its, err := n.ExeFile(pid)
	return err == nil && slices.ContainsFunc(programs, func(program string) bool {
		var ours unix.Stat_t
		err := unix.Stat(program, &ours)
		return err == nil && its.Dev == ours.Dev && its.Inode == ours.Ino && n.trusts(ours.Uid) && ours.Mode&0o022 == 0
	})
}

// jobBelow says whether a process of the job is below a process, beside the caller: then the job
// has begun. A job may have changed its accounts, so one that is in a slot's cgroup counts, and
// one of any account but root's and those of the starter. Copies of the starter are looked into.
func (n Node) jobBelow(c Caller, starter process.UIDs, parent, depth int) bool {
	if depth > maxAncestors {
		return true
	}
	children, err := n.Children(parent)
	if err != nil {
		return true // there may be one
	}
	for _, pid := range children {
		p, err := n.Stat(pid)
		if process.Gone(err) || err == nil && p.Parent != parent || pid == c.PID {
			continue // it ended, or is another's
		}
		uids, errUIDs := n.UIDs(pid)
		if process.Gone(errUIDs) {
			continue
		}
		if err != nil || errUIDs != nil {
			return true // it may be the job's
		}
		for _, uid := range [...]uint32{uids.Real, uids.Effective, uids.Saved, uids.FileSystem} {
			if uid == c.UID || uid != 0 && uid != starter.Real && uid != starter.Effective {
				return true
			}
		}
		slot, err := n.cgroupSlot(pid)
		if err != nil && !process.Gone(err) || slot != "" || n.jobBelow(c, starter, pid, depth+1) {
			return true
		}
	}
	return false
}
