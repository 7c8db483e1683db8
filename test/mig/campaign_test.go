package mig

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// How many changes a campaign makes, and on how many nodes one after another.
const (
	usual    = 200
	campaign = 2000
	perNode  = 40
)

// fixedSeed makes the normal test repeatable; GPUSLOT_CAMPAIGN=1 takes a fresh one.
const fixedSeed = 20261121

// TestCampaign is the executor's proof on the simulated node.
func TestCampaign(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: MIG and modes are root's")
	}
	changes, seed := usual, uint64(fixedSeed)
	if os.Getenv("GPUSLOT_CAMPAIGN") == "1" {
		changes, seed = campaign, uint64(time.Now().UnixNano())
	}
	if s, err := strconv.ParseUint(os.Getenv("GPUSLOT_CAMPAIGN_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("%d changes, GPUSLOT_CAMPAIGN_SEED=%d", changes, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	count := tally{}
	for range changes / perNode {
		runNode(t, r, count)
		if t.Failed() {
			break
		}
	}
	t.Logf("%v", count)
	for _, must := range []string{"end wanted", "end former", "end unchanged", "died", "end degraded", "rebooted", "blocked", "died in create", "mode"} {
		if count[must] == 0 {
			t.Errorf("the campaign never saw: %s", must)
		}
	}
}

// tally counts what a campaign met.
type tally map[string]int

func runNode(t *testing.T, r *rand.Rand, count tally) {
	w := newWorld(t, r)
	defer w.close()
	for g := range w.gpus {
		w.simgpu("mig", strconv.Itoa(g), "on")
	}
	for i := range perNode {
		switch {
		case i%13 == 12:
			w.reboot(count)
		case r.IntN(6) == 0:
			w.foreigner()
		}
		w.shuffleJobs()
		w.change(i, count)
		if t.Failed() {
			return
		}
	}
}

// shuffleJobs ends some jobs and starts others, on our devices and foreign ones.
func (w *world) shuffleJobs() {
	for _, u := range sortedKeys(w.jobs) {
		if w.r.IntN(3) == 0 {
			w.endJob(u)
		}
	}
	for g := range w.gpus {
		for _, i := range w.see(g).Instances {
			u, ok := i.UUID()
			if ok && w.jobs[u] == nil && w.r.IntN(4) == 0 {
				w.startJob(u)
			}
		}
	}
}

func sortedKeys(jobs map[gpu.UUID]*job) []gpu.UUID {
	var keys []gpu.UUID
	for u := range jobs {
		keys = append(keys, u)
	}
	slices.Sort(keys)
	return keys
}

// foreigner makes an instance that is not ours, if there is room.
func (w *world) foreigner() {
	g := w.r.IntN(len(w.gpus))
	s := w.see(g)
	if !s.Enabled {
		return
	}
	p := s.Chip.Profiles[w.r.IntN(len(s.Chip.Profiles))]
	at := p.Starts[w.r.IntN(len(p.Starts))]
	_, _ = w.trySimgpu("mig", strconv.Itoa(g), "create", fmt.Sprintf("%s@%d", p.Name, at))
}

// reboot takes all instances, and the mode of the Hopper; then each GPU gets
// again what it should have.
func (w *world) reboot(count tally) {
	count["rebooted"]++
	for _, u := range sortedKeys(w.jobs) {
		w.endJob(u)
	}
	for g := range w.gpus {
		w.simgpu("mig", strconv.Itoa(g), "destroy")
	}
	w.simgpu("mig", "1", "off")
	w.boot = strconv.Itoa(count["rebooted"])
	for g, u := range w.gpus {
		if wanted := w.book(g).Applied; wanted != nil {
			a, _ := w.order(order{Verb: "apply", GPU: u, Wanted: *wanted})
			if a.Err != "" || w.see(g).Enabled != wanted.Enabled || !ours(w.see(g)).Equal(wanted.Layout) {
				w.t.Errorf("after a reboot: %+v, %+v", a, w.see(g))
			}
		} else {
			w.simgpu("mig", strconv.Itoa(g), "on")
		}
	}
}

// scene is one change to come.
type scene struct {
	gpu     int
	before  []gpu.MIGState
	wanted  mig.Wanted
	allowed bool // no pinned instance stands against it
	faults  []string
	dieAt   int
	hang    bool
}

// change makes one change, in whatever trouble, and looks at what is left.
func (w *world) change(n int, count tally) {
	s := w.plot()
	w.trouble(&s)
	a, died := w.perform(s, count)
	if died {
		count["died"]++
		a = w.afterDeath(s)
	}
	count["end "+string(a.Outcome.End)]++
	if a.Blocked {
		count["blocked"]++
	}
	if s.wanted.Enabled != s.before[s.gpu].Enabled {
		count["mode"]++
	}
	if len(s.faults) > 0 {
		w.simgpu("release", "any")
		w.simgpu("set", "0", "reset-blocked", "no")
	}
	if a.Outcome.End == mig.EndDegraded {
		if b := w.book(s.gpu); b.Degraded == "" || b.Change == nil {
			w.t.Errorf("degraded, and the book does not say so: %+v", b)
		}
		if again, _ := w.order(order{Verb: "recover", GPU: w.gpus[s.gpu]}); again.Outcome.End == mig.EndDegraded {
			w.t.Errorf("still degraded when nothing fails any more: %s", again.Err)
		}
	}
	w.judge(s, a, died)
	if w.t.Failed() {
		w.t.Logf("change %d: GPU %d wants %+v of %+v (%t), faults %v, dies at %d, hangs %t: %+v", n, s.gpu, s.wanted, s.before[s.gpu].Instances, s.allowed, s.faults, s.dieAt, s.hang, a)
	}
}

// plot chooses what is wanted: mostly what pinned instances allow.
func (w *world) plot() scene {
	s := scene{gpu: w.r.IntN(len(w.gpus))}
	for g := range w.gpus {
		s.before = append(s.before, w.see(g))
	}
	now := s.before[s.gpu]
	ls, err := w.cat.Layouts(now.Chip)
	if err != nil {
		w.t.Fatal(err)
	}
	var busy, foreign gpu.Layout
	for _, i := range now.Instances {
		if i.Owner == gpu.Foreign {
			foreign = append(foreign, i.Place)
		} else if i.Busy() {
			busy = append(busy, i.Place)
		}
	}
	busy, foreign = gpu.NewLayout(busy...), gpu.NewLayout(foreign...)
	s.wanted.Enabled = w.r.IntN(10) > 0
	s.allowed = len(busy)+len(foreign) == 0
	if s.wanted.Enabled {
		any := w.r.IntN(4) == 0
		var all []gpu.Layout
		for l := range ls.All() {
			if any || len(busy.Without(l)) == 0 && mig.Legal(now.Chip, append(foreign.Without(l), l...)) == nil {
				all = append(all, l)
			}
		}
		s.wanted.Layout = all[w.r.IntN(len(all))]
		l := s.wanted.Layout
		s.allowed = len(busy.Without(l)) == 0 && mig.Legal(now.Chip, append(foreign.Without(l), l...)) == nil
	}
	return s
}

// calls fail, each with results that they can have: IN_USE 19, INSUFFICIENT_RESOURCES 23, UNKNOWN 999.
var calls = []struct {
	name    string
	results []string
}{
	{"nvmlDeviceCreateGpuInstanceWithPlacement", []string{"19", "23", "999"}},
	{"nvmlGpuInstanceCreateComputeInstance", []string{"19", "23", "999"}},
	{"nvmlComputeInstanceDestroy", []string{"19", "999"}},
	{"nvmlGpuInstanceDestroy", []string{"19", "999"}},
	{"nvmlDeviceSetMigMode", []string{"19", "999"}},
	{"nvmlDeviceGetGpuInstances", []string{"999"}},
	{"nvmlDeviceGetMigDeviceHandleByIndex", []string{"999"}},
}

// trouble plans what goes wrong, in half of the changes.
func (w *world) trouble(s *scene) {
	switch w.r.IntN(8) {
	case 0, 1, 2:
		for range 1 + w.r.IntN(2) {
			c := calls[w.r.IntN(len(calls))]
			fault := []string{"fail", strconv.Itoa(s.gpu), c.name, c.results[w.r.IntN(len(c.results))], strconv.Itoa(1 + w.r.IntN(12))}
			w.simgpu(fault...)
			s.faults = append(s.faults, fmt.Sprint(fault[2:]))
		}
	case 3:
		w.simgpu("set", "0", "reset-blocked", "yes")
		s.faults = append(s.faults, "reset blocked")
	}
	switch w.r.IntN(6) {
	case 0, 1:
		s.dieAt = 1 + w.r.IntN(40)
	case 2:
		s.hang = true
	}
}

// perform lets the applier do it; where it hangs inside a create, between the
// GPU instance and its compute instance, it is killed there.
func (w *world) perform(s scene, count tally) (answer, bool) {
	o := order{Verb: "apply", GPU: w.gpus[s.gpu], Wanted: s.wanted, DieAt: s.dieAt}
	if !s.hang {
		return w.order(o)
	}
	w.simgpu("hang", strconv.Itoa(s.gpu), "nvmlGpuInstanceCreateComputeInstance")
	defer w.simgpu("release", "any")
	if w.hand == nil {
		w.hand = w.start()
	}
	hand := w.hand
	type reply struct {
		answer
		err error
	}
	replies := make(chan reply, 1)
	o.Boot = w.boot
	go func() {
		a, err := hand.ask(o)
		replies <- reply{a, err}
	}()
	for {
		select {
		case got := <-replies:
			if got.err != nil {
				w.reap()
			}
			return got.answer, got.err != nil
		default:
		}
		a, err := w.eye.ask(order{Verb: "state", GPU: w.gpus[s.gpu], Boot: w.boot})
		if err == nil && a.Err == "" && slices.ContainsFunc(a.Outcome.State.Instances, func(i gpu.Instance) bool { return len(i.Compute) == 0 }) {
			count["died in create"]++
			_ = hand.cmd.Process.Kill()
			<-replies
			w.reap()
			return answer{}, true
		}
	}
}

// afterDeath is the next process: it ends what the killed one began.
func (w *world) afterDeath(s scene) answer {
	a, died := w.order(order{Verb: "recover", GPU: w.gpus[s.gpu]})
	if died {
		w.t.Fatal("the applier dies without an order to")
	}
	return a
}

// judge holds what is left against what must never be.
func (w *world) judge(s scene, a answer, died bool) {
	w.t.Helper()
	for g := range w.gpus {
		now, before := w.see(g), s.before[g]
		if d := gocmp.Diff(pinned(before), pinned(now)); d != "" && !more(pinned(before), pinned(now)) {
			w.t.Errorf("GPU %d: busy or foreign instances (-before +after):\n%s", g, d)
		}
		if g != s.gpu {
			if d := gocmp.Diff(before.Instances, now.Instances); d != "" {
				w.t.Errorf("the other GPU (-before +after):\n%s", d)
			}
			continue
		}
		b := w.book(g)
		if b.Change != nil || b.Degraded != "" {
			w.t.Errorf("the journal is not empty: %+v", b)
		}
		if now.Enabled != now.Pending {
			w.t.Errorf("MIG mode is pending: %+v", now)
		}
		wanted, former := is(now, s.wanted.Enabled, s.wanted.Layout, before), is(now, before.Enabled, ours(before), before)
		if !wanted && !former {
			w.t.Errorf("neither wanted nor former: %+v", now.Instances)
		}
		if !s.allowed && !former {
			w.t.Error("pinned instances stand against the change, and it was made")
		}
		if clean := len(s.faults) == 0 && !s.hang && !died; clean && s.allowed && !wanted {
			w.t.Errorf("nothing failed, and the layout is not as wanted: %s", a.Err)
		}
	}
}

// ours are the places of our own instances.
func ours(s gpu.MIGState) gpu.Layout {
	var l gpu.Layout
	for _, i := range s.Instances {
		if i.Owner == gpu.Ours {
			l = append(l, i.Place)
		}
	}
	return gpu.NewLayout(l...)
}

// is tells whether a GPU has that mode and layout, foreign instances aside, and
// every instance of ours its compute instance.
func is(s gpu.MIGState, enabled bool, l gpu.Layout, before gpu.MIGState) bool {
	for _, i := range s.Instances {
		if i.Owner == gpu.Ours && len(i.Compute) != 1 {
			return false
		}
	}
	var foreign gpu.Layout
	for _, i := range before.Instances {
		if i.Owner == gpu.Foreign {
			foreign = append(foreign, i.Place)
		}
	}
	return s.Enabled == enabled && ours(s).Equal(l.Without(gpu.NewLayout(foreign...)))
}

// pinned are busy and foreign instances.
func pinned(s gpu.MIGState) []gpu.Instance {
	var all []gpu.Instance
	for _, i := range s.Instances {
		if i.Pinned() {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b gpu.Instance) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// more tells whether nothing of a is missing in b.
func more(a, b []gpu.Instance) bool {
	return !slices.ContainsFunc(a, func(i gpu.Instance) bool {
		return !slices.ContainsFunc(b, func(k gpu.Instance) bool { return gocmp.Equal(i, k) })
	})
}
