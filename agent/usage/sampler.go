package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Options are what a Sampler needs.
type Options struct {
	Source Source
	Site   Site
	// Opens looks at which GPUs a process has open by their device nodes. It is called by several goroutines and may
	// take long. Where it is nil all processes are taken for those that use the devices.
	Opens func(pid int) func(gpu.UUID) bool
	// DCGM is the site's own dcgm-exporter, for GPUs that do not tell their activity; nil if there is none.
	DCGM ActivitySource
	// Interval is the time between two rounds; data older than three of them is dropped.
	Interval time.Duration
	// Proc is where proc(5) is mounted; empty means /proc.
	Proc string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Sampler owns the readings of the GPUs: one loop asks, everybody else reads its last snapshot.
type Sampler struct {
	options Options
	last    atomic.Pointer[Snapshot]
	// What follows belongs to the loop.
	owners   owners
	seen     map[Device]reading
	trackers map[Device]*tracker
	meters   map[gpu.UUID]*meter
	books    ledger
	nvml     Health
	dcgm     Health
	wait     time.Duration
}

// reading is the last good one of a device.
type reading struct {
	gpu.Use
	At              time.Time
	MIGEnabled      bool
	GPUInstance     int
	part            bool // of a GPU instance with several MIG devices
	Multiprocessors int
	Power           gpu.Measured[uint64]
	Board           gpu.Board
	processes       gpu.Measured[[]Process]
	// unlisted is as in DeviceUsage; partly says that jobs may hold it.
	unlisted gpu.Measured[gpu.Bytes]
	partly   bool
}

// NewSampler makes a sampler that has seen nothing yet.
func NewSampler(o Options) *Sampler {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Sampler{
		options: o, seen: map[Device]reading{}, trackers: map[Device]*tracker{}, meters: map[gpu.UUID]*meter{},
		books: newLedger(), nvml: Health{Source: "nvml"}, dcgm: Health{Source: "dcgm"},
		owners: newOwners(o.Site, process.FS{Root: o.Proc}, o.Opens),
	}
	s.last.Store(&Snapshot{})
	return s
}

// Snapshot is the last one; it is never nil and never changes.
func (s *Sampler) Snapshot() *Snapshot { return s.last.Load() }

// Pace changes the interval, and the wait for whose processes are unless that is 0. Only the caller of Round may.
func (s *Sampler) Pace(interval, wait time.Duration) { s.options.Interval, s.wait = interval, wait }

// reserved are the reservations by device.
type reserved map[Device][]Reservation

// staleAfter is how many intervals old data may be.
const staleAfter = 3

// patience is the part of its interval that a round waits for whose the processes are. To judge them
// package sampling waits as long for where they are: a quarter in all.
const patience = 8

func (s *Sampler) longest() time.Duration { return staleAfter * s.options.Interval }

// Round samples once and publishes a snapshot, whatever comes of it. One goroutine calls it.
func (s *Sampler) Round(ctx context.Context) {
	reservations := reserved{}
	for _, b := range s.options.Site.Reservations() {
		reservations[b.Device] = append(reservations[b.Device], b)
	}
	wait := s.askDCGM(ctx)
	readings, took, err := s.readGPUs(ctx)
	found := s.owners.of(readings, reservations, cmp.Or(s.wait, s.options.Interval/patience))
	activities := wait()
	now := s.options.Now()
	for _, r := range readings {
		if r.Err != nil {
			err = errors.Join(err, fmt.Errorf("GPU %s (NVML index %d): %w", r.GPU, r.Index, r.Err))
			continue
		}
		s.take(r, found, now)
		s.account(r, activities, reservations, now)
	}
	s.owners.end(err == nil)
	s.nvml = s.nvml.next(err, took, now)
	s.dropStale(now)
	s.publish(reservations, now)
}

// readGPUs takes one reading. Its deadline keeps the pace for the GPUs that
// answer: what another answers later is its reading of a later round.
func (s *Sampler) readGPUs(ctx context.Context) (readings []gpu.Reading, took time.Duration, err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.Interval)
	defer cancel()
	readings, err = s.options.Source.Read(ctx)
	return readings, time.Since(begin), err
}

// askDCGM asks the site's exporter while the GPUs are read; the returned
// function waits for a quarter of the interval at most: a job can take the port and be silent.
func (s *Sampler) askDCGM(ctx context.Context) (wait func() Activities) {
	if s.options.DCGM == nil {
		return func() Activities { return nil }
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.Interval/4)
	type reply struct {
		activities Activities
		err        error
		took       time.Duration
	}
	replies := make(chan reply, 1)
	go func() {
		defer cancel()
		a, err := s.options.DCGM.Activities(ctx)
		replies <- reply{a, err, time.Since(begin)}
	}()
	return func() Activities {
		r := <-replies
		s.dcgm = s.dcgm.next(r.err, r.took, s.options.Now())
		return r.activities
	}
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
func (s *Sampler) take(r gpu.Reading, found map[Device]gpu.Measured[[]Process], now time.Time) {
	for d := range s.seen {
		if d.GPU == r.GPU {
			delete(s.seen, d) // MIG devices that are gone
		}
	}
	s.note(Device{GPU: r.GPU}, reading{
		Use: r.Use, At: now, MIGEnabled: r.MIGEnabled, Multiprocessors: r.Multiprocessors,
		Power: r.Power, Board: r.Board, processes: found[Device{GPU: r.GPU}],
	})
	parts := map[int]int{}
	for _, i := range r.Instances {
		parts[i.GPUInstance]++
	}
	for _, i := range r.Instances {
		s.note(Device{GPU: r.GPU, MIG: i.UUID}, reading{
			Use: i.Use, At: now, GPUInstance: i.GPUInstance, part: parts[i.GPUInstance] > 1, Multiprocessors: i.Multiprocessors,
			processes: found[Device{r.GPU, i.UUID}],
		})
	}
}

func (s *Sampler) note(d Device, r reading) {
	r.unlisted, r.partly = s.tracker(d).unlisted.take(r)
	s.seen[d] = r
	if r.processes.Known {
		s.tracker(d).sight(r.processes.Value, r.At)
	}
}

func (s *Sampler) tracker(d Device) *tracker {
	t := s.trackers[d]
	if t == nil {
		t = newTracker()
		s.trackers[d] = t
	}
	return t
}

// dropStale forgets old data. Sums are kept for a while: the device may come back.
func (s *Sampler) dropStale(now time.Time) {
	for d, r := range s.seen {
		if now.Sub(r.At) > s.longest() {
			delete(s.seen, d)
		}
	}
	for d, t := range s.trackers {
		if _, fresh := s.seen[d]; !fresh && d.MIG != "" && now.Sub(t.at) > keepEnded {
			delete(s.trackers, d)
		}
	}
}
