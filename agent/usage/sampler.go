package usage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Options are what a Sampler needs.
type Options struct {
	Source Source
	Site   Site
	// Interval is the time between two rounds; data older than three of them is
	// dropped.
	Interval time.Duration
	// Proc is where proc(5) is mounted; empty means /proc.
	Proc string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Sampler owns the readings of the GPUs: one loop asks, everybody else reads
// its last snapshot.
type Sampler struct {
	options Options
	last    atomic.Pointer[Snapshot]
	// What follows belongs to the loop.
	owners owners
	seen   map[Device]reading
	peaks  map[peakKey]gpu.Bytes
	nvml   Health
}

// reading is the last good one of a device.
type reading struct {
	gpu.Use
	At         time.Time
	MIGEnabled bool
	processes  gpu.Measured[[]Process]
}

type peakKey struct {
	slot   SlotKey
	device Device
}

// NewSampler makes a sampler that has seen nothing yet.
func NewSampler(o Options) *Sampler {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Sampler{options: o, seen: map[Device]reading{}, peaks: map[peakKey]gpu.Bytes{}, nvml: Health{Source: "nvml"}}
	s.owners = owners{site: o.Site, proc: procFS{root: o.Proc}, known: map[processKey]SlotKey{}}
	s.last.Store(&Snapshot{})
	return s
}

// Snapshot is the last one; it is never nil and never changes.
func (s *Sampler) Snapshot() *Snapshot { return s.last.Load() }

// Run samples until the context ends. A round that takes longer than the
// interval is followed by the next at once; rounds never overlap.
func (s *Sampler) Run(ctx context.Context) {
	t := time.NewTicker(s.options.Interval)
	defer t.Stop()
	for {
		s.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// staleAfter is how many intervals old data may be.
const staleAfter = 3

// Round samples once and publishes a snapshot, whatever comes of it. Only Run
// or, in its place, a test calls it.
func (s *Sampler) Round(ctx context.Context) {
	s.owners.begin()
	s.readGPUs(ctx)
	s.dropStale(s.options.Now())
	s.publish()
}

// readGPUs takes one reading. Its deadline leaves time for a snapshot without
// the data before that is stale.
func (s *Sampler) readGPUs(ctx context.Context) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, (staleAfter-1)*s.options.Interval)
	defer cancel()
	readings, err := s.options.Source.Read(ctx)
	for _, r := range readings {
		if r.Err != nil {
			err = errors.Join(err, fmt.Errorf("GPU %s (NVML index %d): %w", r.GPU, r.Index, r.Err))
			continue
		}
		s.take(r)
	}
	s.owners.end(err == nil)
	s.nvml = s.nvml.next(err, time.Since(begin), s.options.Now())
}

// next is the health after one more attempt.
func (h Health) next(err error, took time.Duration, now time.Time) Health {
	h.Err, h.Took = err, took
	if err != nil {
		h.Failures++
	} else {
		h.Succeeded = now
	}
	return h
}

// take remembers what a GPU and its MIG devices told.
func (s *Sampler) take(r gpu.Reading) {
	now := s.options.Now()
	whole := Device{GPU: r.GPU}
	s.seen[whole] = reading{Use: r.Use, At: now, MIGEnabled: r.MIGEnabled, processes: s.owners.of(r.Processes, r.At)}
	for d := range s.seen {
		if d.GPU == r.GPU && d.MIG != "" {
			delete(s.seen, d) // MIG devices that are gone
		}
	}
	for _, i := range r.Instances {
		s.seen[Device{GPU: r.GPU, MIG: i.UUID}] = reading{Use: i.Use, At: now, processes: s.owners.of(i.Processes, r.At)}
	}
}

func (s *Sampler) dropStale(now time.Time) {
	for d, r := range s.seen {
		if now.Sub(r.At) > staleAfter*s.options.Interval {
			delete(s.seen, d)
		}
	}
}
