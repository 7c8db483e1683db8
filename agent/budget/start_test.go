package budget

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// counted is a driver that counts how often a limit was set.
type counted struct {
	*cgroups.Driver
	mu   sync.Mutex
	sets int
	// entered gets a value as a limit is being set, and goOn lets it; nil for neither.
	entered, goOn chan struct{}
}

func (d *counted) SetMemoryLimits(ctx context.Context, u gpu.UUID, cgroup string, soft, hard gpu.Bytes) error {
	d.mu.Lock()
	d.sets++
	d.mu.Unlock()
	if d.entered != nil {
		d.entered <- struct{}{}
		<-d.goOn
	}
	return d.Driver.SetMemoryLimits(ctx, u, cgroup, soft, hard)
}

func (d *counted) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sets
}

// TestStartsOfOneJob: whoever asks for a job's start while it is answered, or soon after, gets the same
// answer, good or bad, and the driver is asked once. Later it is asked again, and for another job at once.
func TestStartsOfOneJob(t *testing.T) {
	c := newNode(t)
	d := &counted{Driver: c.driver}
	c.Limits.driver = d
	clock := time.Now()
	c.starts.now = func() time.Time { return clock }
	st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	j, neighbour := c.table.HeldBy(st)[0], c.table.HeldBy(other)[0]
	broken := errors.New("the driver is not well")
	c.driver.Is(cgroups.Mood{Err: broken})
	for range 20 {
		if reserved, err := c.Start(t.Context(), j, proctree.CgroupOf(st.Slot)); !errors.Is(err, broken) || reserved {
			t.Fatalf("%t, %v", reserved, err)
		}
	}
	once := d.count()
	c.driver.Is(cgroups.Mood{})
	if reserved, err := c.Start(t.Context(), neighbour, proctree.CgroupOf(other.Slot)); err != nil || !reserved {
		t.Errorf("another job: %t, %v", reserved, err)
	}
	before := d.count()
	if _, err := c.Start(t.Context(), j, proctree.CgroupOf(st.Slot)); !errors.Is(err, broken) || d.count() != before || once == 0 {
		t.Errorf("soon after: %v, set %d times, first %d", err, d.count()-before, once)
	}
	clock = clock.Add(startPause)
	if reserved, err := c.Start(t.Context(), j, proctree.CgroupOf(st.Slot)); err != nil || !reserved {
		t.Errorf("later: %t, %v", reserved, err)
	}

	// It brings about that its limit does not count, as by a process in another cgroup.
	c.loose.setOutside(jobs.KeyOf(j.Starter, j.GPU), true)
	before = d.count()
	for range 20 {
		if reserved, err := c.Start(t.Context(), j, proctree.CgroupOf(st.Slot)); err != nil || !reserved {
			t.Fatalf("%t, %v", reserved, err)
		}
	}
	if d.count() != before {
		t.Errorf("its limit was set %d times more", d.count()-before)
	}
	c.end(st)
	c.round()
	if len(c.starts.by) != 1 {
		t.Errorf("%d starts are kept of one job", len(c.starts.by))
	}
}

// TestStartWaits: a start ends with its context while another has the turn, and so does one of the same
// job. It is no answer for those that ask later.
func TestStartWaits(t *testing.T) {
	c := newNode(t)
	d := &counted{Driver: c.driver, entered: make(chan struct{}), goOn: make(chan struct{})}
	c.Limits.driver = d
	st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	j, neighbour := c.table.HeldBy(st)[0], c.table.HeldBy(other)[0]
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Start(t.Context(), j, proctree.CgroupOf(st.Slot)); err != nil {
			t.Error(err)
		}
	})
	<-d.entered
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Start(ended, neighbour, proctree.CgroupOf(other.Slot)); !errors.Is(err, context.Canceled) {
		t.Errorf("another job: %v", err)
	}
	if _, err := c.Start(ended, j, proctree.CgroupOf(st.Slot)); !errors.Is(err, context.Canceled) {
		t.Errorf("the same job: %v", err)
	}
	go func() {
		for range d.entered {
		}
	}()
	close(d.goOn)
	wg.Wait()
	if reserved, err := c.Start(t.Context(), neighbour, proctree.CgroupOf(other.Slot)); err != nil || !reserved {
		t.Errorf("then: %t, %v", reserved, err)
	}
	close(d.entered)
}

// TestStartAgain: HTCondor starts a job again that made a checkpoint. The starter is the same, the cgroup is a new one
// of the same name. It gets the limit before its program starts, whatever is known of the first.
func TestStartAgain(t *testing.T) {
	for name, ends := range map[string]func(c *node, s starter.Starter){
		"at once":       func(c *node, s starter.Starter) { c.gone(s) },
		"reserved less": func(c *node, s starter.Starter) { c.EndReservation(t.Context(), s); c.gone(s) },
		"after a round": func(c *node, s starter.Starter) { c.gone(s); c.round() },
		"another agent": func(c *node, s starter.Starter) { c.gone(s); c.again() },
		"an hour later": func(c *node, s starter.Starter) {
			c.gone(s)
			c.starts.now = func() time.Time { return time.Now().Add(time.Hour) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t)
			st := c.job(100, "slot1_1", 4096)
			j, leaf := c.table.HeldBy(st)[0], proctree.CgroupOf(st.Slot)
			c.passes(st, "dmem", "dmem")
			if _, err := c.Start(t.Context(), j, leaf); err != nil {
				t.Fatal(err)
			}
			ends(c, st)
			c.process(st)
			c.passes(st, "dmem", "dmem")
			c.limits(c.leaf(st), gpu.ErrNoMemoryLimits.Error())
			if reserved, err := c.Start(t.Context(), j, leaf); err != nil || !reserved || c.off(st) {
				t.Errorf("reserved %t, %v, off %t", reserved, err, c.off(st))
			}
			c.limits(c.leaf(st), "soft 4096 hard 4096")
			c.limits(c.htcondor(), "soft 4096 hard max")
		})
	}
}

// TestOldLimitIsNotTheNewOne: a round that looked at a job's first cgroup leaves the limit of its second one alone.
func TestOldLimitIsNotTheNewOne(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	j, leaf := c.table.HeldBy(st)[0], proctree.CgroupOf(st.Slot)
	if _, err := c.Start(t.Context(), j, leaf); err != nil {
		t.Fatal(err)
	}
	old := c.all()[0]
	c.gone(st)
	c.process(st)
	if _, err := c.Start(t.Context(), j, leaf); err != nil {
		t.Fatal(err)
	}
	c.repairLimit(t.Context(), old)
	if err := c.forget(old); err != nil || !c.Has(st, uuid(0)) {
		t.Errorf("its limit is forgotten: %v", err)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	c.limits(c.htcondor(), "soft 4096 hard max")
}

// TestSlowLookAtItsStart: a slow look before the supervisor passed on the controller blames no job for that.
func TestSlowLookAtItsStart(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.passes(st, "dmem", "")
	leaf := proctree.CgroupOf(st.Slot)
	c.round() // a round comes before its turn
	c.limits(filepath.Dir(c.leaf(st)), "soft 0 hard 4096")
	lookFor(func(key string, find func() found) deep.Looking[found] {
		return deep.Begin(key, func() found {
			defer time.Sleep(100 * time.Millisecond) // it is kept for a second
			return find()
		})
	}, c.root, leaf).Within(time.Minute)
	c.passes(st, "dmem", "dmem")
	if err := c.Take(t.Context(), c.table.HeldBy(st)[0], leaf); err != nil || c.off(st) {
		t.Errorf("it has no limit, or is blamed: %v", err)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096")
}

// TestLookUnderWayAtItsStart: a look that is under way at the supervisor's turn blames no job either.
func TestLookUnderWayAtItsStart(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.passes(st, "dmem", "")
	leaf, seen, goOn := proctree.CgroupOf(st.Slot), make(chan struct{}), make(chan struct{})
	lookFor(func(key string, find func() found) deep.Looking[found] {
		return deep.Begin(key, func() found {
			defer func() { close(seen); <-goOn }()
			return find()
		})
	}, c.root, leaf)
	<-seen
	c.passes(st, "dmem", "dmem")
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	if err := c.Take(t.Context(), c.table.HeldBy(st)[0], leaf); err != nil || c.off(st) {
		t.Errorf("it has no limit, or is blamed: %v", err)
	}
}

// waits is a context that shows when somebody waits for its end.
type waits struct {
	context.Context
	begun chan struct{}
	once  sync.Once
}

func (w *waits) Done() <-chan struct{} {
	w.once.Do(func() { close(w.begun) })
	return w.Context.Done()
}

// A round that saw the cgroup before the supervisor's turn may wait while the supervisor gets the limit.
func TestRoundWaitsAtItsStart(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.passes(st, "dmem", "")
	leaf, job := proctree.CgroupOf(st.Slot), c.table.HeldBy(st)[0]
	if err := c.turn.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, done := &waits{Context: t.Context(), begun: make(chan struct{})}, make(chan error)
	go func() { done <- c.take(w, job, leaf, deep.Begin[found]) }()
	<-w.begun
	c.passes(st, "dmem", "dmem")
	l, err := find(c.Limits, job, leaf, deep.Again[found])
	if err == nil {
		err = c.enter(l)
	}
	c.turn.release()
	if err = errors.Join(err, <-done); err != nil || c.off(st) {
		t.Errorf("it has no limit, or is blamed: %v", err)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096")
}
