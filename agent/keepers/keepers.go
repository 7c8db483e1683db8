// Package keepers finds who keeps GPU memory of ended processes in use, by open files of the driver. It ends no
// process.
//
// A job keeps such memory by /dev/nvidia-uvm, and NVML lists no process for it. Somebody is looked for only while a
// device has more of it than it had without a keeper. That a process has the node open proves nothing: one that
// called cuInit has no VRAM, and a neighbour's managed memory is not listed either. Three things prove it. The process
// has the node without /dev/nvidiactl. Or it shared the open file with a process that NVML listed, and that has ended
// and is listed no more. Or it is listed itself, and has more open files of the node than one program opens. Without
// proof no job answers.
//
// Outside of jobs no program needs files of the driver on such a GPU. While memory is kept, a process that has a node
// of the memory manager open for several looks keeps it, whatever its account is. While NVML lists a process after its
// end, that is so of any node of the driver. A socket or an io_uring may hold such files, too, but shows nothing
// against who has it: anybody can send files to anybody.
//
// Start at Watch, which judges what Finder sees.
package keepers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Looks find processes that have nodes of the driver open; Finder is the real one.
type Looks interface {
	// Opens looks at which GPUs a process has open by their device nodes; nil if that is not known. It may take long.
	Opens(pid int) func(gpu.UUID) bool
	// OfJob begins a look at a job's processes. Listed are those that NVML lists.
	OfJob(s starter.Starter, listed []process.ID) deep.Looking[Held]
	// OutsideJobs begins a look at what users run outside of all jobs, except for these, which NVML lists.
	OutsideJobs(spared []process.ID) deep.Looking[Held]
}

// GPU is a GPU or MIG device of the plan.
type GPU struct {
	UUID   gpu.UUID
	Device usage.Device
	// Alone: a job may have all of it.
	Alone bool
}

// Watch follows who keeps memory. Its methods are for one goroutine, except for Keeper.
type Watch struct {
	looks   Looks
	runs    func(process.ID) bool
	on      map[GPU]*keeping
	outside strangers
	mu      sync.Mutex
	// keepers are processes of jobs that keep memory, one of each device.
	keepers map[usage.Device]int
}

// New returns a Watch without samples. If looks is nil, it finds no process.
func New(looks Looks, runs func(process.ID) bool) *Watch {
	return &Watch{looks: looks, runs: runs, on: map[GPU]*keeping{}, keepers: map[usage.Device]int{}}
}

// provenAfter is how many looks in a row must show a keeper: a program may close one file just before the other. After
// clearAfter looks without one, the memory counts as the device's own.
const (
	provenAfter = 3
	clearAfter  = 3
)

// keeping is what is known of one device.
type keeping struct {
	// base is the unlisted memory that the device itself uses: no process could keep it, or it was there when gpuslotd
	// first saw the device (begun). more is the unlisted memory beyond base, 0 if it is within the tolerance.
	base, more gpu.Bytes
	begun      bool
	// ended: NVML lists a process of no known job after its end. Since counts the looks outside of jobs since then.
	ended bool
	since int
	// jobs are those on the device.
	jobs map[starter.Starter]*holding
	// clear counts the looks in a row that show no keeper.
	clear int
	// beyond counts the looks in a row, outside of jobs and at each job, in which jobs were not shown to keep it, or may
	// not have all of it by their budgets. Told: there was a new one outside since it was raised.
	beyond int
	told   bool
}

// kept says that somebody outside of jobs may keep something.
func (k *keeping) kept() bool { return k.more > 0 || k.ended }

// looked is what a look that is made again and again shows.
type looked struct {
	look  deep.Looking[Held]
	under bool // way
	// last is the look that gave the last answer: package deep keeps that of a slow one for a while.
	last deep.Looking[Held]
	// held is the last answer; known says that there is one.
	held  Held
	known bool
}

// take waits for the look under way, and says whether it has a new answer.
func (l *looked) take(wait time.Duration) bool {
	if !l.under {
		return false
	}
	held, done := l.look.Within(wait)
	if !done {
		return false
	}
	again := l.look == l.last
	l.under, l.known, l.held, l.last = false, true, held, l.look
	return !again
}

// strangers is what the looks outside of jobs show.
type strangers struct {
	looked
	seen map[process.ID]sightings
}

// sightings are in how many looks in a row a process had any node of the driver open, and one of the memory manager.
type sightings struct{ node, memory int }

// count counts the holders in a new answer.
func (s *strangers) count() {
	seen := map[process.ID]sightings{}
	for _, p := range s.held.Holders {
		times := s.seen[p.ID]
		times.node++
		if p.Memory {
			times.memory++
		} else {
			times.memory = 0
		}
		seen[p.ID] = times
	}
	s.seen = seen
}

// clear says that the last look was complete, and that no process it found has a node of the memory manager open.
func (s *strangers) clear() bool {
	return s.known && s.held.Err == nil && !slices.ContainsFunc(s.held.Holders, func(p Holder) bool { return p.Memory })
}

// holding is what the looks at some processes show.
type holding struct {
	looked
	// told: there was a new look since keeping.beyond was raised.
	told bool
	// with are the listed processes whose open files each holder had, in how many looks it was seen to keep.
	with map[process.ID]map[process.ID]bool
	seen map[process.ID]int
	// proven are those that kept something. That stays as long as the memory does: they may pass it on.
	proven []int
}

// clear says that the last look was complete and found no process that may keep memory.
func (h *holding) clear() bool {
	return h.known && h.held.Err == nil && !slices.ContainsFunc(h.held.Holders, Holder.May) && len(h.proven) == 0
}

// judge finds the keepers by a new answer. Listed are the PIDs that NVML lists anywhere, here those on this device.
func (h *holding) judge(listed map[int]bool, here map[process.ID]bool, runs func(process.ID) bool) {
	before, seen := h.with, h.seen
	h.with, h.seen = map[process.ID]map[process.ID]bool{}, map[process.ID]int{}
	for _, p := range h.held.Holders {
		with := before[p.ID]
		if with == nil {
			with = map[process.ID]bool{}
		}
		left := false
		for other := range with {
			left = left || !listed[other.PID] && !runs(other)
		}
		for _, other := range p.With {
			if here[other] {
				with[other] = true
			}
		}
		h.with[p.ID] = with
		if p.Many || p.Own && (p.Bare || left) {
			h.seen[p.ID] = seen[p.ID] + 1
		}
		if h.seen[p.ID] == provenAfter && !slices.Contains(h.proven, p.PID) {
			h.proven = append(h.proven, p.PID)
		}
	}
}

// Look judges a sample. It waits for the looks for so long at most since they began: what is not known yet is known
// later.
func (w *Watch) Look(snap *usage.Snapshot, gpus []GPU, running []jobs.Job, wait time.Duration) {
	if w.looks == nil {
		return
	}
	listed, ids := map[int]bool{}, map[process.ID]bool{}
	var spared []process.ID
	for i := range snap.Devices {
		for _, p := range snap.Devices[i].Listed {
			if p.Graphics {
				spared = append(spared, process.ID{PID: p.PID})
			}
		}
		for _, p := range snap.Devices[i].Processes.Value {
			listed[p.PID] = true
			if p.Started != 0 && !p.Anothers() {
				ids[process.ID{PID: p.PID, Started: p.Started}] = true
			}
		}
	}
	before, kept, processes := w.on, false, slices.Collect(maps.Keys(ids))
	w.on = map[GPU]*keeping{}
	for _, g := range gpus {
		k := before[g]
		if k == nil {
			k = &keeping{}
		}
		w.on[g] = k
		d, _ := snap.Device(g.Device)
		k.take(&d)
		k.ask(w.looks, g.UUID, running, processes)
		kept = kept || k.kept()
	}
	if !kept {
		w.outside = strangers{}
	} else if !w.outside.under {
		w.outside.look, w.outside.under = w.looks.OutsideJobs(append(spared, processes...)), true
	}
	fresh := w.outside.take(wait)
	if fresh {
		w.outside.count()
	}
	for g, k := range w.on {
		d, _ := snap.Device(g.Device)
		here := map[process.ID]bool{}
		for _, p := range d.Processes.Value {
			here[process.ID{PID: p.PID, Started: p.Started}] = true
		}
		clear := w.outside.clear()
		k.told = k.told || fresh
		if fresh && k.ended {
			k.since++
		}
		told := k.told
		for _, h := range k.jobs {
			if h.take(wait) {
				h.judge(listed, here, w.runs)
				h.told = true
			}
			clear, told = clear && h.clear(), told && (h.told || h.look.Hidden())
		}
		if k.more == 0 {
			k.beyond = 0
		} else if told {
			k.raise()
		}
		switch {
		case !clear || k.more == 0:
			k.clear = 0
		case fresh:
			k.clear++
		}
		if k.clear == clearAfter { // it is the device's own
			k.base, k.more = d.Unlisted.Value, 0
		}
		w.keep(g, k)
	}
}

// take has what the last sample shows.
func (k *keeping) take(d *usage.DeviceUsage) {
	if k.ended = slices.ContainsFunc(d.Processes.Value, usage.Process.Kept); !k.ended {
		k.since = 0
	}
	k.more = 0
	if !d.Unlisted.Known {
		return
	}
	if !k.begun {
		k.base, k.begun = d.Unlisted.Value, true
	}
	if k.more = max(d.Unlisted.Value, k.base) - k.base; !usage.Unlisted(gpu.Known(k.more)) {
		*k = keeping{base: min(k.base, d.Unlisted.Value), begun: true, ended: k.ended, since: k.since}
	}
}

// raise counts looks of all kinds.
func (k *keeping) raise() {
	k.beyond, k.told = k.beyond+1, false
	for _, h := range k.jobs {
		h.told = false
	}
}

// ask begins the looks that are not under way.
func (k *keeping) ask(looks Looks, u gpu.UUID, running []jobs.Job, listed []process.ID) {
	if k.more == 0 {
		return
	}
	before := k.jobs
	k.jobs = map[starter.Starter]*holding{}
	for _, j := range running {
		if j.GPU != u {
			continue
		}
		h := before[j.Starter]
		if h == nil {
			h = &holding{}
		}
		if k.jobs[j.Starter] = h; !h.under {
			h.look, h.under = looks.OfJob(j.Starter, listed), true
		}
	}
}

// May says whether somebody may keep memory of a device.
func (w *Watch) May(g GPU) bool { return w.on[g] != nil && w.on[g].more > 0 }

// Count adds to the memory of jobs what they are shown to keep. Of several that do, each has at least what is more than
// the others may have by their budgets.
func (w *Watch) Count(all []rules.Job, budgets config.Budgets) {
	for g, k := range w.on {
		if k.more == 0 {
			continue
		}
		room, most := map[*rules.Job]gpu.Bytes{}, gpu.Bytes(0)
		for i := range all {
			j := &all[i]
			h := k.jobs[j.Starter]
			if j.GPU != g.UUID || h == nil || len(h.proven) == 0 {
				continue
			}
			j.Keepers = h.proven
			limit := gpu.Bytes(budgets.Limit(j.Budget).Bytes())
			room[j] = max(limit, j.Memory.Value) - j.Memory.Value
			most += room[j]
		}
		if len(room) > 0 && k.more <= most || g.Alone && k.keeper() != 0 {
			k.beyond = 0
		}
		for j, its := range room {
			others := most - its
			j.Kept = max(k.more, others) - others
			j.Memory.Value += j.Kept
		}
	}
}

// keeper is a process of a job that is shown to keep some of it; 0 if none is.
func (k *keeping) keeper() int {
	for _, h := range k.jobs {
		if len(h.proven) > 0 {
			return h.proven[0]
		}
	}
	return 0
}

// Outside are the processes outside of all jobs that keep something of a device. What jobs keep within their budgets
// is no reason to look for others, and to show that takes jobs one look more at most. A program that only asks NVML,
// such as nvidia-smi, has no node of the memory manager open, and keeps no memory that is not listed.
func (w *Watch) Outside(g GPU) (found []process.ID) {
	k := w.on[g]
	if k == nil {
		return nil
	}
	for _, p := range w.outside.held.Holders {
		times := w.outside.seen[p.ID]
		if min(k.since, times.node) >= provenAfter || k.beyond > provenAfter && times.memory >= provenAfter {
			found = append(found, p.ID)
		}
	}
	return found
}

// keep notes who keeps memory.
func (w *Watch) keep(g GPU, k *keeping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepers[g.Device] = k.keeper()
}

// Keeper is a process of a job that keeps memory of a device; 0 if none is known.
func (w *Watch) Keeper(d usage.Device) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keepers[d]
}
