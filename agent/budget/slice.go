package budget

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// HTCondor gives the slice above a job's cgroup ("….slice") to the job's account, which may make others
// there and go there. It may also switch controllers off for the job's cgroup. This file gives the slice the
// job's hard limit, too, and finds jobs of which a process computes where no limit binds it.

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

// Outside looks at the processes of a job that use a GPU, by their PIDs. It returns those that
// compute in another cgroup, where the limit of their job does not bind them, and notes that
// the job has processes outside its limit. Works says whether jobs of the GPU get limits: a job
// that left may remove its cgroup, and has no limit then. A login has no limit, and is none
// that left. Off says whether the job had its limit and switched off the limit's controller.
func (c *Limits) Outside(j jobs.Job, pids []int, works bool) (left []int, off bool) {
	key := jobs.KeyOf(j.Starter, j.GPU)
	off = c.loose.isOff(key)
	l, ok := c.of(key)
	if !ok && (j.Budget <= 0 || !works) {
		return nil, off
	}
	outside := false
	for _, pid := range pids {
		if _, err := c.cgroups.UnifiedCgroup(pid); process.Gone(err) {
			continue
		} else if err != nil {
			outside = true // where it is cannot be read
			continue
		}
		leaf := c.cgroups.Leaf(pid)
		its := !ok || filepath.Join(c.root, leaf.Path) == l.cgroup().Path
		if its && (!leaf.Left || l.wide) {
			continue
		}
		outside = true
		if its {
			left = append(left, pid)
		}
	}
	c.loose.setOutside(key, ok && outside)
	return left, off
}

// without are the controllers by which the driver limits VRAM that the job's slice has and its cgroup
// has not. Only the slice's cgroup.subtree_control keeps them from it.
func (r reservation) without() (names []string) {
	slice, ok := r.slice()
	if !ok {
		return nil
	}
	above, err := controllers(slice)
	below, errBelow := controllers(r.cgroup())
	if err != nil || errBelow != nil {
		return nil // not known
	}
	for _, name := range []string{"dmem", "misc"} {
		if slices.Contains(above, name) && !slices.Contains(below, name) {
			names = append(names, name)
		}
	}
	return names
}

// controllers are those that the cgroups above a cgroup let it have.
func controllers(c starter.Cgroup) ([]string, error) {
	all, err := os.ReadFile(filepath.Join(c.Path, "cgroup.controllers"))
	return strings.Fields(string(all)), err
}

// passOn gives the job's cgroup the controllers that its slice has: HTCondor passes on only those that it
// uses. It returns one that the job keeps from its cgroup, by processes that it put into the slice itself.
func (r reservation) passOn() (kept string) {
	for _, name := range r.without() {
		slice, _ := r.slice()
		f, err := os.OpenFile(filepath.Join(slice.Path, "cgroup.subtree_control"), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("+" + name)
			err = errors.Join(err, f.Close())
		}
		its := err == nil || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP)
		if its && slices.Contains(r.without(), name) {
			kept = name
		}
	}
	return kept
}

// switchedOff notes a job that switched off the controller of its limit.
func (c *Limits) switchedOff(l limit, controller string) {
	_, had := c.of(l.key())
	if c.loose.switchOff(l.key(), had) {
		c.log.Warn("a job switched off the controller of its limit in its slice",
			append(l.names(), "controller", controller)...)
	}
}
