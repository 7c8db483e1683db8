// Package keepers finds jobs that keep VRAM of ended processes in use by an open file of /dev/nvidia-uvm. NVML lists
// no process for that VRAM. The package ends no process.
//
// Somebody is looked for only while a device has more such memory than it had without a keeper. That a process has
// the node open proves nothing: one that called cuInit has no VRAM, and a neighbour's managed memory is not listed
// either. Three things prove it. The process has the node without /dev/nvidiactl. Or it shared the open file with a
// process that NVML listed, and that has ended and is listed no more. Or it is listed itself, and has more open
// files of the node than one program opens. Without proof somebody is blamed only where all jobs are of one
// account.
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

// Looks find processes that have the node of the driver's memory manager open; Finder is the real one.
type Looks interface {
	// OfJob begins a look at a job's processes. Listed are those that NVML lists.
	OfJob(s starter.Starter, listed []process.ID) deep.Looking[Held]
	// OutsideJobs begins a look at what these accounts run outside of all jobs.
	OutsideJobs(uids []uint32, listed []process.ID) deep.Looking[Held]
}

// GPU is a GPU or MIG device of the plan.
type GPU struct {
	UUID   gpu.UUID
	Device usage.Device
}

// Watch follows who keeps memory. Its methods are for one goroutine, except for Keeper and Searches.
type Watch struct {
	looks Looks
	runs  func(process.ID) bool
	on    map[GPU]*keeping
	mu    sync.Mutex
	// keepers are processes of jobs that keep memory, one of each device. searches are the devices for Searches.
	keepers  map[usage.Device]int
	searches map[GPU]bool
}

// New returns a Watch without samples. If looks is nil, it finds no process.
func New(looks Looks, runs func(process.ID) bool) *Watch {
	return &Watch{
		looks: looks, runs: runs, on: map[GPU]*keeping{}, keepers: map[usage.Device]int{}, searches: map[GPU]bool{},
	}
}

// provenAfter is how many looks in a row must show a keeper: a program may close one file just before the other.
// outsideAfter is how many must be done before what may only have called cuInit counts. After hiddenAfter samples
// the account answers for memory whose keeper no look has found.
const (
	provenAfter  = 3
	outsideAfter = 6
	hiddenAfter  = 6
)

// keeping is what is known of one device.
type keeping struct {
	// base is the unlisted memory that the device itself uses: no process could keep it, or it was there when gpuslotd
	// first saw the device (begun). more is the unlisted memory beyond base, 0 if it is within the tolerance.
	base, more gpu.Bytes
	begun      bool
	// jobs are those on the device, and outside what their accounts run outside of jobs.
	jobs    map[starter.Starter]*holding
	outside holding
	// accounts are those of all jobs that were there since the memory was no more than base, and accountsFor samples
	// before: with how many of them are left.
	accounts map[uint32]int
	// left is for how many samples no job has been there.
	left int
}

// one says that jobs of one account only were there. That account answers for memory whose keeper is not known.
func (k *keeping) one() bool { return len(k.accounts) == 1 }

// own says that the memory is the device's own: all looks were clear, and the account that may have hidden it has no
// job there, nor anything outside of jobs after it was killed.
func (k *keeping) own(clear bool) bool {
	return k.more > 0 && clear && (!k.one() || k.left > searchFor)
}

// accountsFor is more samples than the memory of a job that ends needs to show: it is the least of several readings.
const accountsFor = 5

// holding is what the looks at some processes show.
type holding struct {
	look  deep.Looking[Held]
	under bool // way
	// held is the last answer; known says that there is one.
	held  Held
	known bool
	// with are the listed processes whose open files each holder had, in how many looks it was seen to keep.
	with  map[process.ID]map[process.ID]bool
	seen  map[process.ID]int
	looks int
	// samples are those in which its job was there with such memory.
	samples int
	// may is in how many looks each holder that no listed process explains was seen.
	may map[process.ID]int
	// proven are those that kept something. That stays as long as the memory does: they may pass it on.
	proven []int
}

// clear says that the last look was complete and found no process that may keep memory.
func (h *holding) clear() bool {
	return h.known && h.held.Err == nil && !slices.ContainsFunc(h.held.Holders, Holder.May) && len(h.proven) == 0
}

// take waits for the look under way, and says whether it has an answer.
func (h *holding) take(wait time.Duration) bool {
	if !h.under {
		return false
	}
	held, done := h.look.Within(wait)
	if !done {
		return false
	}
	h.under, h.known, h.held = false, true, held
	return true
}

// judge finds the keepers by a new answer. Listed are the PIDs that NVML lists anywhere, here those on this device.
func (h *holding) judge(listed map[int]bool, here map[process.ID]bool, runs func(process.ID) bool) {
	before, seen, may := h.with, h.seen, map[process.ID]int{}
	h.looks++
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
		if p.May() {
			may[p.ID] = h.may[p.ID] + 1
		}
	}
	h.may = may
}

// suspects are the processes that may keep memory for several looks, without being shown to.
func (h *holding) suspects() (pids []int) {
	for id, looks := range h.may {
		if looks >= provenAfter {
			pids = append(pids, id.PID)
		}
	}
	slices.Sort(pids)
	return pids
}

// Look judges a sample. It waits for the looks for so long at most since they began: what is not known yet is known
// later.
func (w *Watch) Look(snap *usage.Snapshot, gpus []GPU, running []jobs.Job, wait time.Duration) {
	if w.looks == nil {
		return
	}
	listed, ids := map[int]bool{}, map[process.ID]bool{}
	for i := range snap.Devices {
		for _, p := range snap.Devices[i].Processes.Value {
			listed[p.PID] = true
			if p.Started != 0 {
				ids[process.ID{PID: p.PID, Started: p.Started}] = true
			}
		}
	}
	before := w.on
	w.on = map[GPU]*keeping{}
	for _, g := range gpus {
		k := before[g]
		if k == nil {
			k = &keeping{}
		}
		w.on[g] = k
		d, _ := snap.Device(g.Device)
		k.take(d.Unlisted)
		k.note(g.UUID, running)
		k.ask(w.looks, g.UUID, running, slices.Collect(maps.Keys(ids)))
	}
	for g, k := range w.on {
		d, _ := snap.Device(g.Device)
		here := map[process.ID]bool{}
		for _, p := range d.Processes.Value {
			here[process.ID{PID: p.PID, Started: p.Started}] = true
		}
		clear := true
		for _, h := range append(slices.Collect(maps.Values(k.jobs)), &k.outside) {
			if h.take(wait) {
				h.judge(listed, here, w.runs)
			}
			clear = clear && h.clear()
		}
		if k.own(clear) {
			k.base, k.more = d.Unlisted.Value, 0
		}
		w.keep(g, k)
	}
}

// take has what the last sample shows.
func (k *keeping) take(unlisted gpu.Measured[gpu.Bytes]) {
	k.more = 0
	if !unlisted.Known {
		return
	}
	if !k.begun {
		k.base, k.begun = unlisted.Value, true
	}
	if k.more = max(unlisted.Value, k.base) - k.base; usage.Unlisted(gpu.Known(k.more)) {
		return
	}
	*k = keeping{base: min(k.base, unlisted.Value), begun: true, accounts: k.accounts}
	for uid := range k.accounts {
		k.accounts[uid]--
	}
}

// note has the accounts of the jobs that are there now.
func (k *keeping) note(u gpu.UUID, running []jobs.Job) {
	if k.accounts == nil {
		k.accounts = map[uint32]int{}
	}
	for _, j := range running {
		if j.GPU == u && j.Account.Known {
			k.accounts[j.Account.UID] = accountsFor
		}
	}
	maps.DeleteFunc(k.accounts, func(_ uint32, left int) bool { return left <= 0 })
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
		h.samples++
		if k.jobs[j.Starter] = h; !h.under {
			h.look, h.under = looks.OfJob(j.Starter, listed), true
		}
	}
	k.left++
	if len(k.jobs) > 0 {
		k.left = 0
	}
	if !k.outside.under {
		k.outside.look, k.outside.under = looks.OutsideJobs(slices.Collect(maps.Keys(k.accounts)), listed), true
	}
}

// May says whether somebody may keep memory of a device.
func (w *Watch) May(g GPU) bool { return w.on[g] != nil && w.on[g].more > 0 }

// searchFor is for how many samples after its last job a device waits for its memory. From killAfter on, all that its
// account runs outside of jobs is killed, because the file may be hidden: in a socket, a mapping, an io_uring.
const (
	killAfter = 2 * outsideAfter
	searchFor = 3 * outsideAfter
)

// Hides is the account that hides what is kept of a device, as far as can be known: all jobs there were of this one,
// and nothing that they left is seen to keep it.
func (w *Watch) Hides(g GPU) (uid uint32, is bool) {
	k := w.on[g]
	if k == nil || k.more == 0 || !k.one() || k.left <= killAfter || k.left > searchFor {
		return 0, false
	}
	for uid = range k.accounts {
	}
	return uid, true
}

// Searches says that who may keep memory of a device without a job is looked for: a job of another account would make
// it impossible to say whose it is.
func (w *Watch) Searches(g GPU) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.searches[g]
}

// Count adds to the memory of jobs what they keep. Of several jobs that do, each has at least what is more than the
// others may have by their budgets. If none is shown to keep it and all are of one account, those that may keep it
// have what is more than all others there may have: the account has more than all its budgets then. If none of them
// may, as far as can be seen, it is hidden, and each job there may have done that.
func (w *Watch) Count(all []rules.Job, budgets config.Budgets) {
	for g, k := range w.on {
		if k.more == 0 {
			continue
		}
		var there, proven []*rules.Job
		for i := range all {
			j := &all[i]
			h := k.jobs[j.Starter]
			if j.GPU != g.UUID || h == nil {
				continue
			}
			there = append(there, j)
			if len(h.proven) > 0 {
				proven, j.Keepers = append(proven, j), h.proven
			}
		}
		switch {
		case len(proven) > 0:
			share(k.more, proven, proven, budgets)
		case k.one():
			var may, all []*rules.Job
			for _, j := range there {
				h := k.jobs[j.Starter]
				if j.Keepers = h.suspects(); len(j.Keepers) > 0 {
					may = append(may, j)
				}
				if h.samples > hiddenAfter {
					all = append(all, j)
				}
			}
			if len(may) == 0 {
				may = all
			}
			share(k.more, there, may, budgets)
		}
	}
}

// share counts memory for some of these jobs: what is more than the others may have.
func share(more gpu.Bytes, its, answer []*rules.Job, budgets config.Budgets) {
	room, most := map[*rules.Job]gpu.Bytes{}, gpu.Bytes(0)
	for _, j := range its {
		limit := gpu.Bytes(budgets.Limit(j.Budget).Bytes())
		room[j] = max(limit, j.Memory.Value) - j.Memory.Value
		most += room[j]
	}
	for _, j := range answer {
		others := most - room[j]
		j.Kept = max(more, others) - others
		j.Memory.Value += j.Kept
	}
}

// Outside are the processes outside of all jobs that keep memory of a device. If jobs of one account alone were
// there, and none that runs may keep it, it is kept by what that account has open.
func (w *Watch) Outside(g GPU) (found []process.ID) {
	k := w.on[g]
	if k == nil || k.more == 0 {
		return nil
	}
	alone := k.one() && k.outside.looks >= outsideAfter
	for _, h := range k.jobs {
		alone = alone && h.clear()
	}
	for _, p := range k.outside.held.Holders {
		if k.outside.seen[p.ID] >= provenAfter || alone && k.outside.may[p.ID] >= provenAfter {
			found = append(found, p.ID)
		}
	}
	return found
}

// keep notes who keeps memory, and whether that is still looked for.
func (w *Watch) keep(g GPU, k *keeping) {
	pid := 0
	for _, h := range k.jobs {
		if len(h.proven) > 0 {
			pid = h.proven[0]
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepers[g.Device] = pid
	w.searches[g] = k.more > 0 && k.one() && 0 < k.left && k.left <= searchFor
}

// Keeper is a process of a job that keeps memory of a device; 0 if none is known.
func (w *Watch) Keeper(d usage.Device) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keepers[d]
}
