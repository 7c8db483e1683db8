package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// A node for graphics gives VRAM that no limit of MPS holds and that NVML lists for no process. So such nodes of
// shared GPUs are closed to jobs, too: on the service of HTCondor's daemons, which has the cgroups of all jobs and is
// there before the first of them.

// errGraphicsOpen says why jobs can open such nodes.
var errGraphicsOpen = errors.New("jobs can open nodes for graphics of shared GPUs: " +
	"HTCondor's daemons are in no cgroup below a service of systemd")

// serviceOf is the service of systemd that a cgroup is below; empty if there is none.
func serviceOf(daemons string) string {
	above, _, is := strings.Cut(daemons, ".service/")
	if above += ".service"; !is || strings.Contains(above, "/..") {
		return ""
	}
	return above
}

// closeGraphics closes these nodes on the services of HTCondor's daemons, and opens others. With none it takes the
// rules back, also those of an earlier agent, and where no daemon is any more. The caller holds turn.
func (n *Nodes) closeGraphics(daemons []string, nodes []devices.Node, spared []uint32) error {
	if len(nodes) == 0 && n.above != nil && len(n.above) == 0 {
		return nil
	}
	var errs []error
	dirs := map[starter.Cgroup]bool{}
	for dir := range n.above {
		dirs[dir] = dir.Exists()
	}
	for _, p := range daemons {
		dir, err := starter.CgroupAt(filepath.Join(n.root, serviceOf(p)))
		switch {
		case serviceOf(p) == "":
			if len(nodes) > 0 {
				errs = append(errs, errGraphicsOpen)
			}
		case err == nil:
			dirs[dir] = true
		case !errors.Is(err, fs.ErrNotExist): // otherwise it has ended
			errs = append(errs, err)
		}
	}
	r, now := devices.Rule{Closed: nodes, Spared: spared}, map[starter.Cgroup]devices.Rule{}
	for dir, exists := range dirs {
		had, err := n.above[dir], error(nil)
		switch {
		case !exists:
			continue
		case r.Empty():
			err = n.kernel.Remove(dir.Path)
		case !had.Equal(r):
			err = n.kernel.Put(dir.Path, r)
		}
		switch {
		case err == nil && !r.Empty():
			now[dir] = r
		case err != nil && !errors.Is(err, fs.ErrNotExist) && dir.Exists():
			errs = append(errs, fmt.Errorf("nodes for graphics: %w", err))
			now[dir] = had
		}
	}
	n.above = now
	return errors.Join(errs...)
}
