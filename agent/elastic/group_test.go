package elastic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// node has processes, HTCondor's slots and events.
type node struct {
	mu     sync.Mutex
	ended  map[process.ID]bool
	slots  []condor.Slot
	err    error
	events []string
}

func (n *node) Runs(p process.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.ended[p]
}

func (n *node) Identify(uint32, int) (starter.Caller, error) {
	return starter.Caller{}, errors.New("nobody")
}

func (n *node) OriginOf(int) starter.Origin { return starter.Origin{} }

func (n *node) Slots(context.Context, string) ([]condor.Slot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.slots, n.err
}

func (n *node) Event(e history.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e.Text)
}

func (n *node) end(s starter.Starter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[s.ID] = true
}

// planOf is a plan of n elastic GPUs, on the shared side.
func planOf(n int) plan.Plan {
	var p plan.Plan
	for i := range n {
		p.GPUs = append(p.GPUs, plan.GPU{UUID: uuid(i), Elastic: true, Mode: config.ModeMPS, Memory: 32768})
	}
	return p
}

// site lets the group turn at once.
var site = config.Elastic{Patience: time.Second, Stay: time.Second, Offer: time.Minute}

func newGroup(n int) (*Group, *node, *jobs.Table, plan.Plan) {
	world := &node{ended: map[process.ID]bool{}}
	table, p := jobs.New(world), planOf(n)
	g := NewGroup(Options{Jobs: table, Slots: world, Events: world, Log: slog.New(slog.DiscardHandler)})
	g.Follow(p, plan.Plan{}, time.Now())
	return g, world, table, p
}

// admit asks for a GPU as a hook does, and says whether the job got it.
func admit(g *Group, table *jobs.Table, p *plan.Plan, s starter.Starter, u gpu.UUID, whole bool) (admitted bool) {
	wall := map[bool]string{true: jobs.EnforcedByWhole, false: jobs.EnforcedByNone}[whole]
	table.Admit(starter.Caller{Starter: s, Hook: true}, func(v *jobs.View) []jobs.Job {
		if admitted = g.Refuse(v, s, p, []gpu.UUID{u}, whole) == nil; !admitted {
			return nil
		}
		return []jobs.Job{{Starter: s, GPU: u, EnforcedBy: wall}}
	})
	return admitted
}

func starterOf(pid int) starter.Starter {
	return starter.Starter{ID: process.ID{PID: pid, Started: 1}, Slot: fmt.Sprintf("slot1_%d", pid)}
}

// rounds lets the group go on for some seconds, with the startd's monitor listening.
func rounds(t *testing.T, g *Group, p *plan.Plan, d Demand, seconds int) {
	for range seconds {
		g.Open()
		time.Sleep(time.Second)
		if g.Round(t.Context(), site, d, never) {
			turned := g.Follow(planOf(len(p.GPUs)), plan.Plan{}, time.Now())
			*p = turned
			g.SetUp(func(gpu.UUID) bool { return true })
		}
	}
}

// TestGroup: a shared job keeps its GPU until it ends, then whole jobs have it, then the
// shared ones again. A slot of HTCondor's whose job has not come keeps it, too.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, world, table, p := newGroup(1)
		shared, whole := starterOf(1), starterOf(2)
		if !admit(g, table, &p, shared, uuid(0), false) || admit(g, table, &p, whole, uuid(0), true) {
			t.Fatal("at first it serves shared jobs")
		}
		rounds(t, g, &p, wholeJob(1, time.Time{}), 10)
		if g.Open().Open != 0 || !strings.Contains(g.Side(uuid(0)), "goes to whole jobs when its last shared job has ended") {
			t.Errorf("beside a shared job: %+v, %q", g.Open(), g.Side(uuid(0)))
		}
		if !admit(g, table, &p, shared, uuid(0), false) {
			t.Error("the job that is there is refused")
		}
		world.end(shared)
		table.DropEnded()
		for name, slots := range map[string][]condor.Slot{
			"held":       {{Type: "Dynamic", AssignedGPUs: []string{string(uuid(0))}}},
			"unreadable": {{Type: "Dynamic", Unreadable: "AssignedGPUs"}},
		} {
			world.slots = slots
			if rounds(t, g, &p, wholeJob(1, time.Time{}), 5); g.Open().Open != 0 {
				t.Errorf("%s: it was opened although HTCondor may have a slot there", name)
			}
		}
		world.slots = []condor.Slot{{Type: "Partitionable", AssignedGPUs: []string{string(uuid(0))}}}
		rounds(t, g, &p, wholeJob(1, time.Time{}), 10)
		if o := g.Open(); o.Open != 1 || len(o.GPUs) != 1 || o.Reason != "" {
			t.Fatalf("drained: %+v", o)
		}
		if admit(g, table, &p, starterOf(3), uuid(0), false) || !admit(g, table, &p, whole, uuid(0), true) {
			t.Error("it does not serve whole jobs alone")
		}
		rounds(t, g, &p, Demand{Known: true, Shared: true}, 10)
		if g.Side(uuid(0)) == "" {
			t.Error("it went back beside a whole job")
		}
		world.end(whole)
		table.DropEnded()
		rounds(t, g, &p, Demand{Known: true, Shared: true}, 10)
		if why := g.Side(uuid(0)); why != "" || !admit(g, table, &p, starterOf(4), uuid(0), false) {
			t.Errorf("back: %q", why)
		}
		if text := strings.Join(world.events, " "); !strings.Contains(text, "It serves whole jobs. It serves shared jobs.") {
			t.Errorf("events: %s", text)
		}
	})
}

// TestRefusalSaysWhatAGPUServes: a job of the other side hears it.
func TestRefusalSaysWhatAGPUServes(t *testing.T) {
	g, _, table, p := newGroup(1)
	for side, serves := range map[Side]string{Shared: "serves shared jobs now", Whole: "serves whole jobs now"} {
		g.state.Sides[0] = side
		table.Look(func(v *jobs.View) {
			if r := g.Refuse(v, starterOf(1), &p, []gpu.UUID{uuid(0)}, side == Shared); r == nil || !strings.Contains(fmt.Sprint(*r), serves) {
				t.Errorf("%v, want %q", r, serves)
			}
		})
	}
}

// TestUnknownJobs: nothing is decided, and nothing opened, while a job's GPU is not known.
func TestUnknownJobs(t *testing.T) {
	g, _, table, _ := newGroup(1)
	table.Await([]starter.Starter{starterOf(1)})
	if g.Round(t.Context(), site, wholeJob(1, time.Time{}), never) {
		t.Error("it turned")
	}
	if o := g.Open(); o.Open != 0 || o.GPUs != nil || !strings.Contains(o.Reason, "runs since before") {
		t.Errorf("%+v", o)
	}
}

// TestFollow: GPUs that a plan does not have any more are forgotten; none is elastic where
// the plan has none.
func TestFollow(t *testing.T) {
	g, _, _, _ := newGroup(0)
	if g.Open() != nil || g.Side(uuid(0)) != "" || g.Round(t.Context(), site, Demand{}, never) {
		t.Error("a group without GPUs does something")
	}
	was := planOf(2)
	was.GPUs[1].Mode = config.ModeWhole
	p := g.Follow(planOf(2), was, time.Now())
	if p.GPUs[0].Mode == config.ModeWhole || p.GPUs[1].Mode != config.ModeWhole {
		t.Errorf("sides of the plan before: %s, %s", p.GPUs[0].Mode, p.GPUs[1].Mode)
	}
}

// TestNoGPUServesBoth: jobs of both kinds ask at once while the group goes on. No GPU ever
// has both.
func TestNoGPUServesBoth(t *testing.T) {
	g, world, table, p := newGroup(2)
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex // p
	current := func() plan.Plan {
		mu.Lock()
		defer mu.Unlock()
		return p
	}
	var loop, asking sync.WaitGroup
	loop.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			d := wholeJob(1, time.Time{})
			if i/50%2 == 0 {
				d = Demand{Known: true, Shared: true}
			}
			if g.Round(ctx, config.Elastic{}, d, never) {
				turned := g.Follow(planOf(2), plan.Plan{}, time.Now())
				mu.Lock()
				p = turned
				mu.Unlock()
				g.SetUp(func(gpu.UUID) bool { return true })
			}
			g.Open()
			table.DropEnded()
		}
	})
	for k := range 4 {
		asking.Go(func() {
			for i := range 300 {
				s, now := starterOf(1+k*300+i), current()
				u := uuid(i % 2)
				if !admit(g, table, &now, s, u, k%2 == 0) {
					continue
				}
				walls := map[string]bool{}
				for _, j := range table.Running() {
					if j.GPU == u {
						walls[j.EnforcedBy] = true
					}
				}
				if len(walls) > 1 {
					t.Errorf("%s serves both kinds", u)
				}
				world.end(s)
			}
		})
	}
	asking.Wait()
	stop()
	loop.Wait()
}
