package budget

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
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
