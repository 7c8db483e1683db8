package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Driver is the driver's hold on the VRAM of cgroups; nvml.Library is the
// real one. Errors match gpu.ErrNoCgroup and gpu.ErrNoMemoryLimits.
type Driver interface {
	// SetMemoryLimits limits a cgroup, named by its full path, on one GPU.
	SetMemoryLimits(ctx context.Context, u gpu.UUID, cgroup string, soft, hard gpu.Bytes) error
	// MemoryLimits reads its limits and its use.
	MemoryLimits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error)
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
	// JobCgroup is the cgroup of a starter's job, below the mount; empty while no
	// process of the job is there.
	JobCgroup(s starter.Starter) string
}

// Metrics count what happened to the limits; metrics.Metrics is the real one.
type Metrics interface {
	// CgroupLimited counts a job that got its limit; late: it used the GPU before.
	CgroupLimited(u gpu.UUID, late bool)
	// ReservationRepaired counts a reservation that was given back for a cgroup that went
	// before it.
	ReservationRepaired(u gpu.UUID)
}

// Options are what Limits work with.
type Options struct {
	// Driver sets the limits; nil if nothing can.
	Driver    Driver
	Jobs      Jobs
	Processes Processes
	Metrics   Metrics
	Log       *slog.Logger
	// Root is the mount of cgroup v2.
	Root string
	// File holds the reservations for the next agent. A reboot takes both away.
	File string
}

// Limits are those of the running jobs. All methods may be called by several goroutines at
// a time.
type Limits struct {
	driver    Driver
	jobs      Jobs
	processes Processes
	metrics   Metrics
	log       *slog.Logger
	root      string
	// wake is for a job that has ended.
	wake chan struct{}

	// turn is taken over the calls that change limits: a repair takes a part from a sum that
	// other jobs are in.
	turn   turn
	loose  loose
	starts starts

	// mu guards what follows; the driver is not called under it.
	mu   sync.Mutex
	file string
	by   map[jobs.Key]limit
	// lost is why reservations of an earlier agent are not known, refused why none can
	// be kept: the file with those could not be put aside.
	lost, refused error
	// unlimited is why jobs of a GPU have no limit, failedAt when a job last had none, stuck what
	// cannot be repaired.
	unlimited map[gpu.UUID]string
	failedAt  map[gpu.UUID]time.Time
	stuck     map[jobs.Key]string
}

// NewLimits returns limits without any. Read takes over those of an earlier agent.
func NewLimits(o Options) *Limits {
	return &Limits{
		driver: o.Driver, jobs: o.Jobs, processes: o.Processes, metrics: o.Metrics, log: o.Log,
		root: o.Root, file: o.File, wake: make(chan struct{}, 1),
		by: map[jobs.Key]limit{}, unlimited: map[gpu.UUID]string{}, failedAt: map[gpu.UUID]time.Time{},
		stuck: map[jobs.Key]string{}, turn: make(turn, 1),
		loose:  loose{outside: map[jobs.Key]bool{}, off: map[jobs.Key]bool{}},
		starts: starts{now: time.Now, by: map[jobs.Key]*start{}},
	}
}

// Has says whether a job was limited on a GPU.
func (c *Limits) Has(s starter.Starter, u gpu.UUID) bool {
	_, ok := c.of(jobs.KeyOf(s, u))
	return ok
}

// EnforcedBy is what enforces a job's budget: its cgroup's limit, where that stands, or what else there is.
func (c *Limits) EnforcedBy(j jobs.Job, otherwise string, now time.Time) string {
	key := jobs.KeyOf(j.Starter, j.GPU)
	if l, ok := c.of(key); ok && l.holds(now) && l.Hard == j.Budget && !c.loose.isOutside(key) {
		return jobs.EnforcedByCgroup
	}
	return otherwise
}

// Used is what the driver counts for a job's cgroup; not known where its limit does not
// stand, or the job has processes outside, which the driver does not count.
func (c *Limits) Used(s starter.Starter, u gpu.UUID, now time.Time) gpu.Measured[gpu.Bytes] {
	key := jobs.KeyOf(s, u)
	if l, ok := c.of(key); ok && l.holds(now) && !c.loose.isOutside(key) {
		return gpu.Known(l.used)
	}
	return gpu.Measured[gpu.Bytes]{}
}

func (c *Limits) of(k jobs.Key) (limit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.by[k]
	return l, ok
}

// all are the limits in fixed order.
func (c *Limits) all() []limit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sorted()
}

// sorted are the limits in fixed order.
func (c *Limits) sorted() []limit {
	out := make([]limit, 0, len(c.by))
	for _, l := range c.by {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b limit) int {
		return cmp.Or(cmp.Compare(a.Starter.Started, b.Starter.Started), cmp.Compare(a.Starter.PID, b.Starter.PID),
			strings.Compare(string(a.GPU), string(b.GPU)))
	})
	return out
}

// enter enters a limit and keeps it for the next agent.
func (c *Limits) enter(l limit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[l.key()] = l
	return c.write()
}

// forget drops a limit of which nothing is left. One that the job has got since, in another cgroup, stays.
func (c *Limits) forget(l limit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, known := c.by[l.key()]; known && now.cgroup() != l.cgroup() {
		return nil
	}
	delete(c.by, l.key())
	delete(c.stuck, l.key())
	c.loose.setOutside(l.key(), false)
	return c.write()
}

// confirmed enters what the driver just said, with the limit's wide; no time if it said otherwise.
func (c *Limits) confirmed(l limit, at time.Time, used gpu.Bytes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.by[l.key()]; ok {
		now.proved, now.used, now.wide = at, used, l.wide
		c.by[l.key()] = now
	}
}

// complain notes why a GPU's jobs have no limit, empty if they have; true if
// that is new.
func (c *Limits) complain(u gpu.UUID, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.unlimited[u]
	c.unlimited[u], c.failedAt[u] = why, time.Now()
	return why != "" && why != was
}

// stick notes what cannot be repaired; true if that is new.
func (c *Limits) stick(l limit, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.stuck[l.key()]
	c.stuck[l.key()] = why
	return why != was
}

// Unlimited is why jobs of a GPU have no limit, and when that was last so; empty if nothing keeps
// them from it, as far as is known.
func (c *Limits) Unlimited(u gpu.UUID) (why string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driver == nil {
		return "nothing can limit cgroups", time.Time{}
	}
	return c.unlimited[u], c.failedAt[u]
}

// Warnings say which budgets are not held by limits, and which reservations stay behind.
// They are complete sentences, in fixed order.
func (c *Limits) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for u, why := range c.unlimited {
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
func (c *Limits) write() error {
	if c.refused != nil {
		return c.refused
	}
	all := []reservation{}
	for _, l := range c.sorted() {
		all = append(all, l.reservation)
	}
	return store.WriteJSON(c.file, all)
}

// Read takes over the reservations of an earlier agent. A file that cannot be read
// is put aside; where that fails, nothing is written over it. The error says where it is.
func (c *Limits) Read() error {
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
	looks := make([]deep.Looking[controls], len(all))
	for i, r := range all {
		looks[i] = deep.Begin("read "+r.lookKey(), r.controls)
	}
	for i, r := range all {
		had, _ := looks[i].Within(deep.Patient) // what is not seen has not changed
		c.by[r.key()] = limit{reservation: r, had: had}
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
