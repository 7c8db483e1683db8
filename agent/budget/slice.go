package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// HTCondor gives the slice above a job's cgroup ("….slice") to the job's account, which may make others
// there and go there. It may also switch controllers off for the job's cgroup. This file gives the slice the
// job's hard limit, too, whose files are root's, and finds jobs that their own limit does not bind.

// widen gives the job's slice the hard limit of the job, where it has another, and says in the
// limit whether it binds all that is below. It returns what the driver counts there, 0 where
// that is not known. The soft limit stays: the driver adds it up from the job's cgroup, which
// shows that limits bind from above ("dmem"). That cannot be seen when it is 0, and stays as
// it was then.
func (c *Limits) widen(ctx context.Context, l *limit) (used gpu.Bytes) {
	hard, soft := gpu.Bytes(l.Hard.Bytes()), gpu.Bytes(l.Soft.Bytes())
	slice, ok := l.slice()
	if !ok {
		l.wide = false
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	got, err := c.limits(ctx, l.GPU, slice.Path)
	none := errors.Is(err, gpu.ErrNoMemoryLimits)
	if none || err == nil && got.Hard != hard && got.Soft <= hard {
		if c.driver.SetMemoryLimits(ctx, l.GPU, slice.Path, got.Soft, hard) == nil {
			got, err = c.limits(ctx, l.GPU, slice.Path)
		}
	}
	if err != nil {
		l.wide = false
		return 0
	}
	l.wide = got.Hard == hard && (soft > 0 && got.Soft >= soft || soft == 0 && l.wide)
	return got.Used
}

// narrow takes the hard limit of the job's slice away.
func (c *Limits) narrow(ctx context.Context, l limit) error {
	slice, ok := l.slice()
	if !ok {
		return nil
	}
	got, err := c.limits(ctx, l.GPU, slice.Path)
	if errors.Is(err, gpu.ErrNoMemoryLimits) || err == nil && got.Hard == gpu.Unlimited {
		return nil
	}
	if err != nil {
		return err
	}
	return c.driver.SetMemoryLimits(ctx, l.GPU, slice.Path, got.Soft, gpu.Unlimited)
}

// ErrNotYet says that the kernel has not said yet where a process is.
var ErrNotYet = errors.New("the kernel has not said yet in which cgroup the process is")

// Look looks at processes of a job by the cgroup of HTCondor's in which each is. Errors are those of reading /proc.
// Left are those that compute in another cgroup, where the limit of their job does not bind them. Unclear: others may.
type Look func(pids []int, leaf func(pid int) (starter.Leaf, error)) (left []int, unclear bool)

// Outside says of a job whether it had its limit and switched off the limit's controller, and gives a look at its
// processes that use a GPU; nil if they may be anywhere. Works says whether jobs of the GPU get limits: a job
// that left may remove its cgroup, and has no limit then.
//
// The look notes that the job has processes outside its limit. A login has no limit, and is none that left. What a
// service manager of the job's account took out of HTCondor's cgroups has left.
//
// Where a process is not known yet (ErrNotYet), it may be outside: what the driver counts in the job's cgroup is not
// all then. But no job is held for that: it has not left, and unclear says that it may have.
func (c *Limits) Outside(j jobs.Job, works bool) (off bool, look Look) {
	key := jobs.KeyOf(j.Starter, j.GPU)
	off, never := c.loose.isOff(key)
	l, ok := c.of(key)
	if !ok && (j.Budget <= 0 || !works || never) {
		return off, nil
	}
	return off, func(pids []int, leaf func(pid int) (starter.Leaf, error)) (left []int, unclear bool) {
		outside := false
		for _, pid := range pids {
			at, err := leaf(pid)
			if err != nil {
				outside = outside || !process.Gone(err) // where it is cannot be read
				unclear = unclear || errors.Is(err, ErrNotYet)
				continue
			}
			its := !ok || filepath.Join(c.root, at.Path) == l.cgroup().Path
			if its && (!at.Left || l.wide) {
				continue
			}
			outside = true
			if its || at.Path == "" {
				left = append(left, pid)
			}
		}
		c.loose.setOutside(key, ok && outside)
		return left, unclear
	}
}

// The driver limits VRAM by a controller, "dmem" or "misc". HTCondor passes neither on from a job's slice to its
// cgroup; the job's supervisor does. gpuslotd writes nothing there. The kernel lets a write to cgroup.subtree_control
// wait for cgroups below that lose a controller, and a job can make such cgroups without end.
var controllers = [2]string{"dmem", "misc"}

// controls are the inodes of the controllers' files in a job's slice and in its cgroup; 0 for none. A controller that
// was switched off and on again has another file, and no limit.
type controls struct{ above, its [2]uint64 }

// controls are those of the job now; none where HTCondor makes no slice, and so gives the job's account none.
// In the slice only what it has is looked for: see deep.Look.
func (r reservation) controls() (c controls) {
	slice, ok := r.slice()
	if !ok {
		return c
	}
	text, _ := os.ReadFile(filepath.Join(slice.Path, "cgroup.controllers"))
	for i, name := range controllers {
		if slices.Contains(strings.Fields(string(text)), name) {
			above, _ := starter.CgroupAt(filepath.Join(slice.Path, name+".max"))
			its, _ := starter.CgroupAt(filepath.Join(r.cgroup().Path, name+".max"))
			c.above[i], c.its[i] = above.Inode, its.Inode
		}
	}
	return c
}

// kept is a controller that the slice has and the job's cgroup has not; empty if there is none.
func (c controls) kept() string {
	for i, name := range controllers {
		if c.above[i] != 0 && c.its[i] == 0 {
			return name
		}
	}
	return ""
}

// switched is a controller that was switched off in the slice since; empty if there is none.
func (c controls) switched(now controls) string {
	for i, name := range controllers {
		if c.its[i] != 0 && c.its[i] != now.its[i] && c.above[i] == now.above[i] {
			return name
		}
	}
	return ""
}

// sight is what is seen of a limit's cgroup.
type sight struct {
	// exists: the cgroup that was limited may be there. Off is a controller that the job's account switched off
	// in it, so that it may have no limit.
	exists bool
	off    string
}

// there says that the cgroup is there as it was limited.
func (s sight) there() bool { return s.exists && s.off == "" }

// see looks for a limit's cgroup, for a short time: false where the job's account keeps that from ending.
func (l limit) see() (sight, bool) { return l.look(deep.Begin[sight]).Within(deep.Patient) }

// look begins what see waits for. Who sees several limits begins all looks first.
func (l limit) look(begin func(key string, find func() sight) deep.Looking[sight]) deep.Looking[sight] {
	return begin(l.lookKey(), func() sight {
		off := cmp.Or(l.had.kept(), l.had.switched(l.controls()))
		return sight{l.cgroup().Exists(), off} // last: it may go during the look at its files
	})
}

// lookAtAll begins the looks for limits, so that those which their jobs hide are waited for together.
func lookAtAll(all []limit) []limit {
	for _, l := range all {
		l.look(deep.Begin[sight])
	}
	return all
}

func (r reservation) lookKey() string { return fmt.Sprint("limit ", r.key(), r.cgroup()) }

// switchedOff notes a job whose account keeps the controller of its limit from its cgroup. That says nothing of the
// driver, nor of other jobs.
func (c *Limits) switchedOff(l limit, controller string) error {
	_, had := c.of(l.key())
	err := fmt.Errorf("its slice has the controller %s, which the supervisor passes on to its cgroup; "+
		"its cgroup has it no more, or had it not all the time", controller)
	if c.loose.switchOff(l.key(), had) {
		c.log.Warn("a job's account keeps the controller of its limit from its cgroup", append(l.names(), "err", err)...)
	}
	return err
}
