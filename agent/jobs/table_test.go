package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// fakeNode are processes that the test starts and ends.
type fakeNode struct {
	mu   sync.Mutex
	runs map[process.ID]bool
	// callers are what Identify says of PIDs; an error for all others.
	callers map[int]starter.Caller
	// origins are those of PIDs; account 1000, after all starters, for all others.
	origins map[int]starter.Origin
}

func newNode() *fakeNode {
	return &fakeNode{runs: map[process.ID]bool{}, callers: map[int]starter.Caller{}}
}

func (n *fakeNode) Runs(p process.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runs[p]
}

func (n *fakeNode) Identify(_ uint32, pid int) (starter.Caller, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.callers[pid]; ok {
		return c, nil
	}
	return starter.Caller{}, errors.New("no slot")
}

func (n *fakeNode) OriginOf(pid int) starter.Origin {
	if o, ok := n.origins[pid]; ok {
		return o
	}
	return starter.Origin{Account: starter.Account{UID: 1000, Known: true}, Began: 1000}
}

// starter starts the starter of a slot.
func (n *fakeNode) starter(pid int, slot string) starter.Starter {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := starter.Starter{ID: process.ID{PID: pid, Started: uint64(pid)}, Slot: slot}
	n.runs[s.ID] = true
	return s
}

func (n *fakeNode) end(s starter.Starter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.runs, s.ID)
}

// job is an entry of alice's.
func job(s starter.Starter, n int, budget gpu.MiB) Job {
	return Job{
		Starter: s, GPU: uuid(n), Budget: budget, Owner: "alice", ID: "1.0",
		Account: starter.Account{UID: 1000, Known: true},
	}
}

// add enters jobs as their hooks do.
func (t *Table) add(entries ...Job) {
	for _, j := range entries {
		t.Admit(starter.Caller{Starter: j.Starter, Hook: true}, func(*View) []Job { return []Job{j} })
	}
}

// TestLastShare: several hooks ask for a GPU with three shares at once, jobs end
// meanwhile, and HTCondor's ads come. No decision ever finds more jobs than shares.
func TestLastShare(t *testing.T) {
	const shares, hooks, each = 3, 8, 100
	node := newNode()
	table := New(node)
	stop, others := make(chan struct{}), sync.WaitGroup{}
	for _, look := range []func(){
		func() { table.DropEnded() },
		func() { table.Settle(Ads{}) },
		func() { _, _, _ = table.Running(), table.Holds(), table.Needs(uuid(0), 1000) },
	} {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					look()
				}
			}
		})
	}
	var asking sync.WaitGroup
	for h := range hooks {
		asking.Go(func() {
			for i := range each {
				s := node.starter(1+h*each+i, fmt.Sprintf("slot1_%d", h))
				admitted := false
				table.Admit(starter.Caller{Starter: s, Hook: true}, func(v *View) []Job {
					n := len(v.On(uuid(0)))
					if n > shares {
						t.Errorf("%d jobs on a GPU of %d shares", n, shares)
					}
					if admitted = n < shares; !admitted {
						return nil
					}
					return []Job{job(s, 0, 1)}
				})
				if admitted != table.Has(s, uuid(0)) {
					t.Errorf("admitted %t, in the table %t", admitted, !admitted)
				}
				node.end(s)
			}
		})
	}
	asking.Wait()
	close(stop)
	others.Wait()
	table.DropEnded()
	if left := table.Running(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// TestReserveOrAdmit: a MIG device is either reserved for its end, or gets a job.
func TestReserveOrAdmit(t *testing.T) {
	for i := range 200 {
		node := newNode()
		table, s := New(node), node.starter(1+i, "slot1_1")
		var reserved string
		var admitted bool
		var both sync.WaitGroup
		both.Go(func() { reserved = table.Reserve([]gpu.UUID{uuid(0)}) })
		both.Go(func() {
			table.Admit(starter.Caller{Starter: s, Hook: true}, func(v *View) []Job {
				if admitted = v.Leaves(uuid(0)) == ""; !admitted {
					return nil
				}
				return []Job{job(s, 0, 1)}
			})
		})
		both.Wait()
		if admitted == (reserved == "") {
			t.Fatalf("admitted %t, and reserved beside %q", admitted, reserved)
		}
	}
}

// TestWordsOfAnEntry: whose words stand in an entry that is there already.
func TestWordsOfAnEntry(t *testing.T) {
	node := newNode()
	s := node.starter(1, "slot1_1")
	for _, c := range []struct {
		name      string
		confirmed bool // the entry was
		caller    starter.Caller
		owner     string
	}{
		{"a hook", false, starter.Caller{Hook: true}, "bob"},
		{"a caller whom the startd confirms", false, starter.Caller{Confirmed: true}, "bob"},
		{"a job", false, starter.Caller{}, "alice"},
		{"a hook after the startd", true, starter.Caller{Hook: true}, "alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, first := New(node), job(s, 0, 4096)
			first.Confirmed, first.Account = c.confirmed, starter.Account{}
			first.Work = Work{Program: "train.py"}
			table.add(first)
			next := job(s, 0, 4096)
			next.Owner = "bob"
			table.Admit(c.caller, func(*View) []Job { return []Job{next} })
			all := table.Running()
			if len(all) != 1 || all[0].Owner != c.owner || all[0].Work.Program != "train.py" || !all[0].Account.Known {
				t.Errorf("%+v", all)
			}
		})
	}
}

// TestHold: a job is told once, the hold goes with it into its record, and ends with it.
func TestHold(t *testing.T) {
	node := newNode()
	table, s := New(node), node.starter(1, "slot1_2")
	other := node.starter(2, "slot1_1")
	table.add(job(s, 0, 1), job(other, 0, 1))
	over := api.Hold{Slot: "slot1_2", Code: api.CodeOverBudget, Reason: "too much"}
	if !table.Hold(s, over) || table.Hold(s, api.Hold{Code: api.CodeUnattached}) || table.HoldOf(s).Code != over.Code {
		t.Errorf("%+v", table.HoldOf(s))
	}
	if all := table.ToBeHeld(); len(all) != 1 || !all[s] {
		t.Errorf("to be held: %+v", all)
	}
	table.Hold(other, api.Hold{Slot: "slot1_1"})
	if all := table.Holds(); len(all) != 2 || all[0].Slot != "slot1_1" {
		t.Errorf("%+v", all)
	}
	node.end(s)
	if ended := table.DropEnded(); len(ended) != 1 || ended[0].Hold.Reason != over.Reason {
		t.Errorf("%+v", ended)
	}
	if table.HoldOf(s).Code != 0 || table.Hold(s, over) {
		t.Error("the hold outlives its job")
	}
}

// TestSince: a job that has ended is known by when its end was seen.
func TestSince(t *testing.T) {
	node := newNode()
	table, runs, ended, other := New(node), node.starter(1, "slot1_1"), node.starter(2, "slot1_2"), node.starter(3, "slot1_3")
	table.add(job(runs, 0, 1))
	table.add(job(ended, 0, 1))
	table.add(job(other, 1, 1))
	begin := time.Now()
	node.end(ended)
	node.end(other)
	table.DropEnded()
	slots := func(begin time.Time) (all []string) {
		for _, j := range table.Since(uuid(0), begin) {
			all = append(all, j.Starter.Slot)
		}
		return all
	}
	if now := slots(begin); !slices.Equal(now, []string{"slot1_1", "slot1_2"}) {
		t.Errorf("since before the end: %q", now)
	}
	if later := slots(time.Now().Add(time.Second)); !slices.Equal(later, []string{"slot1_1"}) {
		t.Errorf("since after the end: %q", later)
	}
	table.Look(func(v *View) { v.ended[0].seen = begin.Add(-2 * endedFor) })
	if table.DropEnded(); len(slots(time.Time{})) != 1 {
		t.Error("an end of two minutes ago is still known")
	}
}

// TestFull: it counts until a job ends there, or another plan is in force.
func TestFull(t *testing.T) {
	node := newNode()
	table, s := New(node), node.starter(1, "slot1_1")
	table.add(job(s, 0, 1))
	full := func() (is bool) {
		table.Look(func(v *View) { is = v.IsFull(uuid(0)) })
		return is
	}
	for name, end := range map[string]func(){
		"another plan": table.NewPlan,
		"a job ended":  func() { node.end(s); table.DropEnded() },
	} {
		table.add(job(node.starter(1, "slot1_1"), 0, 1))
		table.Look(func(v *View) { v.NoteFull(uuid(0)) })
		if !full() {
			t.Errorf("%s: not full", name)
		}
		if end(); full() {
			t.Errorf("%s: it stays full", name)
		}
	}
}

// TestNeeds: access is kept while anybody's job may need it.
func TestNeeds(t *testing.T) {
	node := newNode()
	table, s := New(node), node.starter(1, "slot1_1")
	if table.Needs(uuid(0), 1000) {
		t.Error("without jobs")
	}
	table.add(job(s, 0, 1))
	if !table.Needs(uuid(0), 1000) || table.Needs(uuid(0), 1001) || table.Needs(uuid(1), 1000) {
		t.Error("not by its own account on its own GPU alone")
	}
	unknown := job(node.starter(2, "slot1_2"), 1, 1)
	unknown.Account = starter.Account{}
	table.add(unknown)
	if !table.Needs(uuid(1), 1001) {
		t.Error("a job of an unknown account may be anybody's")
	}
	table.Release(unknown.Starter, uuid(1))
	table.Await([]starter.Starter{node.starter(3, "slot1_3")})
	if !table.Needs(uuid(1), 1001) {
		t.Error("a job on an unknown GPU may be anybody's")
	}
}

// TestLocate: a job's process that left its parents is known by its slot and account.
func TestLocate(t *testing.T) {
	node := newNode()
	table, s := New(node), node.starter(1, "slot1_1")
	table.add(job(s, 0, 1), job(s, 1, 1), job(node.starter(2, "slot1_2"), 0, 1))
	c := starter.Caller{UID: 1000, Starter: starter.Starter{Slot: "slot1_1@wn1"}}
	held, others, err := table.OfCaller(&c)
	if err != nil || !c.Starter.Is(s) || len(held) != 2 || others[uuid(0)] != 1 || others[uuid(1)] != 0 {
		t.Errorf("%+v, %v, %v", held, others, err)
	}
	for _, tt := range []struct {
		slot string
		uid  uint32
		says string
	}{
		{"slot1_1", 1001, "runs as uid 1000 and the caller as uid 1001"},
		{"slot1_9", 1000, "no job of slot1_9 was admitted"},
	} {
		c := starter.Caller{UID: tt.uid, Starter: starter.Starter{Slot: tt.slot}}
		if _, _, err := table.OfCaller(&c); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.slot, err)
		}
	}
}

// TestStarterOf: processes are those of jobs in the table, and of jobs that wait for
// HTCondor's word.
func TestStarterOf(t *testing.T) {
	node := newNode()
	table := New(node)
	first, waits := node.starter(1, "slot1_1"), node.starter(2, "slot1_2")
	table.add(job(first, 0, 1))
	table.Await([]starter.Starter{waits})
	node.callers = map[int]starter.Caller{
		10: {Starter: starter.Starter{Slot: "slot1_1@wn1"}},
		11: {Starter: first, Hook: true},
		20: {Starter: starter.Starter{Slot: "slot1_2@wn1"}},
		21: {Starter: waits, Hook: true},
		30: {Starter: starter.Starter{Slot: "slot1_3@wn1"}},
		31: {Starter: node.starter(3, "slot1_3"), Hook: true},
		50: {Starter: starter.Starter{Slot: "slot1_1@wn1"}}, // left from the slot's job before
		51: {Starter: starter.Starter{Slot: "slot1_1@wn1"}}, // of the job, which changed its account
		53: {Starter: starter.Starter{Slot: "slot1_1@wn1"}}, // it ended meanwhile
		52: {Starter: first},                                // below the starter, as su in the job
	}
	other := starter.Account{UID: 1001, Known: true}
	node.origins = map[int]starter.Origin{
		50: {Account: other}, 51: {Account: other, Began: first.Started}, 52: {Account: other}, 53: {},
	}
	for pid, want := range map[int]int{10: 1, 11: 1, 20: 2, 21: 2, 30: 0, 31: 0, 40: 0, 50: 0, 51: 1, 52: 1, 53: 1} {
		if s, ok := table.StarterOf(pid); s.PID != want || ok != (want != 0) {
			t.Errorf("process %d is of %d, %t", pid, s.PID, ok)
		}
	}
	if held, why := table.Starting(first); len(held) != 1 || why != "" {
		t.Errorf("%+v, %q", held, why)
	}
	held, why := table.Starting(waits)
	if held != nil || !strings.Contains(why, "has not said yet which GPUs slot1_2 has") {
		t.Errorf("%+v, %q", held, why)
	}
}

// TestDiscover: a starter is taken in once.
func TestDiscover(t *testing.T) {
	node := newNode()
	table := New(node)
	known, elsewhere, fresh := node.starter(1, "slot1_1"), node.starter(2, "slot1_2"), node.starter(3, "slot1_3")
	table.add(job(known, 0, 1))
	table.PutElsewhere(elsewhere)
	for range 2 {
		table.Discover([]starter.Starter{known, elsewhere, fresh})
	}
	if why := table.Unknown(); !strings.HasPrefix(why, "slot1_3 runs since before") {
		t.Errorf("unknown: %q", why)
	}
	node.end(fresh)
	if table.DropEnded(); table.Unknown() != "" {
		t.Errorf("unknown: %q", table.Unknown())
	}
}

// TestRunningIsACopy: who has the answer does not change the table.
func TestRunningIsACopy(t *testing.T) {
	node := newNode()
	table := New(node)
	table.add(job(node.starter(1, "slot1_1"), 0, 1))
	s := starter.Starter{ID: process.ID{PID: 1, Started: 1}}
	for _, all := range [][]Job{table.Running(), table.Since(uuid(0), time.Now()), table.HeldBy(s)} {
		all[0].Owner = "mallory"
	}
	if slices.ContainsFunc(table.Running(), func(j Job) bool { return j.Owner != "alice" }) {
		t.Error("it was changed")
	}
}
