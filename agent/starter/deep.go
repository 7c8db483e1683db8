package starter

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// slotDepth is how far below the parent of its daemons' cgroup HTCondor makes those of slots.
const slotDepth = 3

// cgroupText reads /proc/<pid>/cgroup. Before 6.8 the kernel shows none where the path has
// 4096 bytes or more (ENAMETOOLONG), and a job can make such a one below its slice. The process
// is then looked for below the slices of jobs, and the text says no more than the slice.
func (n Node) cgroupText(pid int) ([]byte, error) {
	text, err := n.Cgroup(pid)
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return text, err
	}
	var looks *room.Room // the agent's own have places without end
	if n.Turns != nil && !n.trusts(n.asker) {
		looks = n.Turns.Deep
	}
	leave, busy := looks.Enter(n.asker)
	if busy != nil {
		return nil, busy
	}
	defer leave()
	slice, guess, no := locate(n, pid)
	if slice = cmp.Or(slice, guess); slice != "" {
		return []byte("0::" + slice + "/below\n"), nil
	}
	return nil, cmp.Or(no, err)
}

// locate looks for a process below the slices of all slots. If it is in none, the slice of a slot that keeps gpuslotd
// from looking is the guess: who hides its cgroups is taken for the one that hides the process. An error says that
// a slot may hold it without that.
func locate(n Node, pid int) (slice, guess string, err error) {
	looks, unknown := n.intoSlots(pid)
	own, wait := n.trusts(n.asker), deep.Patient
	if own {
		wait = deep.Brief // it asks again in the next round
	}
	its := looks.Find(pid, wait)
	below := func(path string) string {
		return strings.TrimPrefix(path, filepath.Clean(cmp.Or(n.Mount, "/sys/fs/cgroup")))
	}
	switch unknown = cmp.Or(unknown, its.Err); {
	case its.In != "":
		return below(its.In), "", nil
	case its.Early || its.Hidden != "" && !own:
		return "", "", deep.ErrHidden
	case unknown != nil:
		return "", "", unknown
	}
	return "", below(cmp.Or(its.Many, its.Hidden)), nil
}

// intoSlots begins looks for a process into all slots of this node. With an error there may be more.
func (n Node) intoSlots(pid int) (deep.Looks, error) {
	if n.pass != nil {
		return n.pass()
	}
	n.FS = process.FS{Root: n.Root} // the look may outlive the caller's reads
	p, _ := n.Stat(pid)             // one that has ended is in no slot
	daemons, err := n.Daemons.For(p.Started, n.DaemonCgroups)
	mount := cmp.Or(n.Mount, "/sys/fs/cgroup")
	slots := slotCgroups(mount, daemons)
	for i := range slots {
		slots[i] = filepath.Join(mount, slots[i])
	}
	return deep.Into(slots), err
}

// slotCgroups are the uppermost cgroups of the slots of this node, below the mount: beside
// those of HTCondor's daemons, or in BASE_CGROUP. A new slot's is among them at once.
func slotCgroups(mount string, daemons []string) (found []string) {
	for _, p := range append(daemons, "/htcondor/daemons") {
		above := filepath.Join(mount, path.Dir(p))
		_ = filepath.WalkDir(above, func(at string, d fs.DirEntry, err error) error {
			switch rest, _ := filepath.Rel(above, at); {
			case err != nil: // the cgroup has ended
				return fs.SkipDir
			case !d.IsDir():
				return nil
			case cgroup.Slot(d.Name()) != "":
				found = append(found, strings.TrimPrefix(at, filepath.Clean(mount)))
				return fs.SkipDir
			case strings.Count(rest, "/")+1 >= slotDepth:
				return fs.SkipDir
			}
			return nil
		})
	}
	return slices.Compact(slices.Sorted(slices.Values(found)))
}
