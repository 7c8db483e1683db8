package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// A node for graphics gives VRAM that no limit of MPS holds and that NVML lists for no process. So such nodes of
// shared GPUs are closed to jobs, too: on the service of HTCondor's daemons, which has the cgroups of all jobs and is
// there before the first of them.

// services are the services of systemd that these cgroups are below.
func services(daemons []string) (found []string) {
	for _, p := range daemons {
		above, _, is := strings.Cut(p, ".service/")
		if above += ".service"; is && !strings.Contains(above, "/..") && !slices.Contains(found, above) {
			found = append(found, above)
		}
	}
	return found
}

// closeGraphics closes these nodes on the services of HTCondor's daemons, and opens others. With none it takes the
// rules back, also those of an earlier agent. The caller holds turn.
func (n *Nodes) closeGraphics(daemons []string, nodes []devices.Node, spared []uint32) error {
	if len(nodes) == 0 && n.above != nil && len(n.above) == 0 {
		return nil
	}
	r := devices.Rule{Closed: nodes, Spared: spared}
	now := map[starter.Cgroup]devices.Rule{}
	var errs []error
	for _, p := range services(daemons) {
		dir, err := starter.CgroupAt(filepath.Join(n.root, p))
		had := n.above[dir]
		switch {
		case err != nil:
		case r.Empty():
			err = n.kernel.Remove(dir.Path)
		case !had.Equal(r):
			err = n.kernel.Put(dir.Path, r)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) || err != nil && !dir.Exists(): // it has ended
		case err != nil:
			errs = append(errs, fmt.Errorf("nodes for graphics: %w", err))
			now[dir] = had
		case !r.Empty():
			now[dir] = r
		}
	}
	n.above = now
	return errors.Join(errs...)
}
