package budget

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
)

// A job can ask for its start as often as it likes, and can bring about that its limit does not stand.
// Each limit that is set holds the turn, which the starts of all jobs need. This file bounds what one job takes.

const (
	// startTimeout is how long a start waits for its turn and for the driver.
	startTimeout = 10 * time.Second
	// startPause is how long the answer to a start holds for others of the same job.
	startPause = 5 * time.Second
)

// start is one job's: free has a value while the job is being limited.
type start struct {
	free chan struct{}
	// at is when it was answered with err; zero before.
	at  time.Time
	err error
}

// starts are those of running jobs that their supervisors asked for.
type starts struct {
	// now is the clock.
	now func() time.Time
	mu  sync.Mutex
	by  map[jobs.Key]*start
}

// Start limits a job's cgroup as its supervisor asks, unless its limit stands: see Take. Reserved says
// whether the driver was told to keep VRAM for it. Others of the same job who ask meanwhile, or soon
// after, get the same answer.
func (c *Limits) Start(ctx context.Context, j jobs.Job, leaf string) (reserved bool, err error) {
	key := jobs.KeyOf(j.Starter, j.GPU)
	stands := func() bool { return stands(c, key, leaf) }
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = c.starts.once(ctx, key, stands, func() error {
		if !stands() {
			return takeAgain(ctx, c, j, leaf)
		}
		if c.EnforcedBy(j, "", time.Now()) != "" {
			return nil
		}
		return c.Take(ctx, j, leaf)
	})
	return c.Has(j.Starter, j.GPU), err
}

// stands says whether a job's limit is that of the cgroup that has the name now. HTCondor makes a new one where it
// starts a job again that made a checkpoint, and the starter stays.
func stands(c *Limits, key jobs.Key, leaf string) bool {
	l, known := c.of(key)
	if !known || l.cgroup().Path != filepath.Join(c.root, leaf) {
		return false
	}
	s, seen := l.look(deep.Again[sight]).Within(deep.Patient)
	return seen && s.exists
}

// takeAgain limits a job's cgroup after what an earlier one of the job left.
func takeAgain(ctx context.Context, c *Limits, j jobs.Job, leaf string) error {
	if l, known := c.of(jobs.KeyOf(j.Starter, j.GPU)); known {
		if _, _, err := c.repair(ctx, l); err != nil {
			return err
		}
	}
	return c.Take(ctx, j, leaf)
}

// once limits a job, or gives the answer of the last time: a good one as long as its limit stands.
func (s *starts) once(ctx context.Context, key jobs.Key, stands func() bool, limit func() error) error {
	its := s.of(key)
	select {
	case its.free <- struct{}{}:
		defer func() { <-its.free }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !its.at.IsZero() && s.now().Sub(its.at) < startPause && (its.err != nil || stands()) {
		return its.err
	}
	err := limit()
	if ctx.Err() == nil { // otherwise it is not the job's answer
		its.at, its.err = s.now(), err
	}
	return err
}

// of is the start of a job.
func (s *starts) of(key jobs.Key) *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	its := s.by[key]
	if its == nil {
		its = &start{free: make(chan struct{}, 1)}
		s.by[key] = its
	}
	return its
}

// keep drops the jobs that have ended.
func (s *starts) keep(running map[jobs.Key]gpu.MiB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(key jobs.Key, _ *start) bool {
		_, runs := running[key]
		return !runs
	})
}

// turn has a value while it is taken.
type turn chan struct{}

// take takes the turn, also one that is free when the context has ended.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) release() { <-t }
