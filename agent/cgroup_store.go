package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// cgroupsFile holds the limits that the driver was told to hold, for the next
// agent; a reboot takes both away.
func cgroupsFile(p config.Paths) string { return filepath.Join(p.Run, "cgroups.json") }

// cgroups are the limits of the running jobs.
type cgroups struct {
	// driver is nil where there is none.
	driver CgroupMemory
	// root is the mount of cgroup v2.
	root string
	// wake is for a job that has ended.
	wake chan struct{}

	// turn is held over the calls that change limits: a repair takes a part from
	// a sum that other jobs are in.
	turn sync.Mutex

	// mu guards what follows; no call is made under it.
	mu   sync.Mutex
	file string
	by   map[holder]limit
	// lost is why reservations of an earlier agent are not known, refused why none can
	// be kept: the file with those could not be put aside.
	lost, refused error
	// trouble is why jobs of a GPU have no limit, stuck what cannot be repaired.
	trouble map[gpu.UUID]string
	stuck   map[holder]string
	// outside are jobs of which the last sample shows a process on the GPU that their limit
	// does not bind.
	outside map[holder]bool
}

// holder is a job on a GPU.
type holder struct {
	pid     int
	started uint64
	gpu     gpu.UUID
}

func holderOf(s starter.Starter, u gpu.UUID) holder { return holder{s.PID, s.Started, u} }

func newCgroups(driver CgroupMemory, root, file string) *cgroups {
	return &cgroups{driver: driver, root: root, file: file, wake: make(chan struct{}, 1),
		by: map[holder]limit{}, trouble: map[gpu.UUID]string{}, stuck: map[holder]string{}, outside: map[holder]bool{}}
}

// of is a job's limit.
func (c *cgroups) of(s starter.Starter, u gpu.UUID) (limit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.by[holderOf(s, u)]
	return l, ok
}

// all are the limits in fixed order.
func (c *cgroups) all() []limit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sorted()
}

// sorted are the limits in fixed order.
func (c *cgroups) sorted() []limit {
	out := make([]limit, 0, len(c.by))
	for _, l := range c.by {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b limit) int {
		return cmp.Or(cmp.Compare(a.Starter.Started, b.Starter.Started), cmp.Compare(a.Starter.PID, b.Starter.PID), strings.Compare(string(a.GPU), string(b.GPU)))
	})
	return out
}

// enter books a limit and keeps it for the next agent.
func (c *cgroups) enter(l limit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[holderOf(l.Starter, l.GPU)] = l
	return c.write()
}

// forget drops a limit of which nothing is left.
func (c *cgroups) forget(l limit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, holderOf(l.Starter, l.GPU))
	delete(c.stuck, holderOf(l.Starter, l.GPU))
	delete(c.outside, holderOf(l.Starter, l.GPU))
	return c.write()
}

// proved books what the driver just said, with the limit's wide; no time if it said otherwise.
func (c *cgroups) proved(l limit, at time.Time, used gpu.Bytes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.by[holderOf(l.Starter, l.GPU)]; ok {
		now.proved, now.used, now.wide = at, used, l.wide
		c.by[holderOf(l.Starter, l.GPU)] = now
	}
}

// complain notes why a GPU's jobs have no limit, empty if they have; true if
// that is new.
func (c *cgroups) complain(u gpu.UUID, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.trouble[u]
	c.trouble[u] = why
	return why != "" && why != was
}

// stick notes what cannot be repaired; true if that is new.
func (c *cgroups) stick(l limit, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.stuck[holderOf(l.Starter, l.GPU)]
	c.stuck[holderOf(l.Starter, l.GPU)] = why
	return why != was
}

// fine says that nothing keeps a GPU's jobs from their limits, as far as is known.
func (c *cgroups) fine(u gpu.UUID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driver != nil && c.trouble[u] == ""
}

// warnings are complete sentences.
func (c *cgroups) warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for u, why := range c.trouble {
		if why != "" {
			out = append(out, fmt.Sprintf("Budgets on %s are not held by limits of cgroups: %s.", u, why))
		}
	}
	for _, why := range c.stuck {
		out = append(out, why)
	}
	if c.lost != nil {
		out = append(out, "Which cgroups the driver keeps VRAM for is not known: "+c.lost.Error()+".")
	}
	slices.Sort(out)
	return out
}

// write keeps all reservations.
func (c *cgroups) write() error {
	if c.refused != nil {
		return c.refused
	}
	all := []reservation{}
	for _, l := range c.sorted() {
		all = append(all, l.reservation)
	}
	return store.WriteJSON(c.file, all)
}

// read takes over the reservations of an earlier agent. A file that cannot be read
// is put aside; where that fails, nothing is booked over it.
func (c *cgroups) read() error {
	if c.driver == nil {
		return nil // it is for another agent
	}
	all, err := store.Store[[]reservation]{Path: c.file}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = checkReservations(all)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.refused = store.Aside(c.file)
		c.lost = fmt.Errorf("%w: the file is kept as %s.unreadable; "+
			"what it told of stays reserved until the cgroups' soft limits are lowered or the node reboots", err, c.file)
		return errors.Join(c.lost, c.refused)
	}
	for _, r := range all {
		c.by[holderOf(r.Starter, r.GPU)] = limit{reservation: r}
	}
	return nil
}

// checkReservations refuses what write does not write.
func checkReservations(all []reservation) error {
	for _, r := range all {
		if _, err := gpu.ParseUUID(string(r.GPU)); err != nil {
			return err
		}
		if len(r.Path) == 0 || r.Hard <= 0 || r.Soft < 0 || r.Soft > r.Hard || r.Starter.PID <= 0 {
			return fmt.Errorf("the reservation of %s is not complete", foreign.Clip(r.Starter.Slot))
		}
	}
	return nil
}
