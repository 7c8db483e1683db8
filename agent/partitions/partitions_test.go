package partitions

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// runs are the starters that run.
type runs map[process.ID]bool

func (r runs) Runs(p process.ID) bool { return r[p] }

// at are partitions with a file, an empty job table and no starter that runs.
func at(file string) *Partitions {
	return New(Options{File: file, Jobs: jobs.New(starter.Node{}), Processes: runs{}})
}

func offer(p *Partitions, s starter.Starter, daemon process.ID) (id string) {
	p.jobs.Look(func(v *jobs.View) { id = p.Offer(v, s, uuid(0), daemon) })
	return id
}

func TestCompare(t *testing.T) {
	row := func(name string, chunks int) mps.Partition { return mps.Partition{Name: name, UsedChunks: &chunks} }
	free := 3
	rest := mps.Partition{FreeChunks: &free}
	ids := []string{"GPU-1/Dx4AAAA", "GPU-1/Dx4AAAB", "GPU-1/Bx4A/AA"}
	for name, c := range map[string]struct {
		listed  []mps.Partition
		other   string
		missing int
	}{
		"all":               {[]mps.Partition{rest, row("Dx4AAA...", 4), row("Dx4AAA...", 4), row("Bx4A/AA", 4)}, "", 0},
		"not all yet":       {[]mps.Partition{rest, row("Dx4AAA...", 4), row("Dx4AAA...", 4), row("Bx4A/AA", 4)}, "", 1},
		"a stranger's":      {[]mps.Partition{row("Dx4AAA...", 4), row("Dx4AAA...", 4), row("Bx4A/AA", 4), row("Cx4AAA...", 4)}, "one was not made by gpuslot", 0},
		"three of two":      {[]mps.Partition{row("Dx4AAA...", 4), row("Dx4AAA...", 4), row("Dx4AAA...", 4)}, "one was not made by gpuslot", 0},
		"another size":      {[]mps.Partition{row("Dx4AAA...", 4), row("Dx4AAA...", 5), row("Bx4A/AA", 4)}, "one is not of 4 chunks", 0},
		"an unknown size":   {[]mps.Partition{row("Dx4AAA...", 4), {Name: "Dx4AAA..."}, row("Bx4A/AA", 4)}, "one is not of 4 chunks", 0},
		"one is gone":       {[]mps.Partition{row("Dx4AAA...", 4), row("Bx4A/AA", 4)}, "1 of 3 are gone", 0},
		"more than shares":  {[]mps.Partition{row("Dx4AAA...", 4), row("Dx4AAA...", 4), row("Bx4A/AA", 4)}, "there are 3 for 2 shares", 0},
		"nothing, of three": {nil, "3 of 3 are gone", 0},
	} {
		shares := 3
		switch name {
		case "not all yet":
			shares = 4
		case "more than shares":
			shares = 2
		}
		got := compare(c.listed, ids, 4, shares)
		if got.other != c.other || c.other == "" && got.missing != c.missing || c.other == "" && (got.free == nil || *got.free != 3) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := compare([]mps.Partition{rest}, nil, 4, 3); got.missing != 3 || got.other != "" {
		t.Errorf("a fresh daemon: %+v", got)
	}
}

// TestOneJobEach: whatever comes and goes, no two live slots hold one
// partition, one that is free is given out, and the next agent knows the same.
func TestOneJobEach(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		p := at(filepath.Join(dir, fmt.Sprint(n)))
		daemon, shares := process.ID{PID: 1}, rapid.IntRange(1, 6).Draw(rt, "shares")
		live := map[process.ID]bool{}
		p.processes = runs(live)
		start := func() {
			daemon.PID++
			one := set{GPU: uuid(0), Daemon: daemon}
			// Ids of one daemon may return in the next.
			for i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(rt, "ids")[:shares] {
				one.IDs = append(one.IDs, fmt.Sprintf("%s/p%d", uuid(0), (i+daemon.PID)%8))
			}
			if err := p.note(one); err != nil {
				rt.Fatal(err)
			}
		}
		start()
		pid := 100
		rt.Repeat(map[string]func(*rapid.T){
			"come": func(rt *rapid.T) {
				if len(live) >= shares {
					return // admission lets no more in
				}
				pid++
				s := starter.Starter{ID: process.ID{PID: pid, Started: uint64(pid)}, Slot: "slot1_1"}
				id := offer(p, s, daemon)
				if id == "" || !slices.Contains(p.made[uuid(0)].IDs, id) {
					rt.Fatalf("offered %q beside %d of %d: %v", id, len(live), shares, p.had)
				}
				if other := offer(p, s, process.ID{PID: daemon.PID - 1}); other != "" {
					rt.Fatalf("%s is offered of a daemon that is gone", other)
				}
				live[s.ID] = true
				if p.Take(s, uuid(0), id) != nil {
					if err := p.Write(); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"end": func(rt *rapid.T) {
				if len(live) > 0 {
					all := slices.SortedFunc(maps.Keys(live), func(a, b process.ID) int { return a.PID - b.PID })
					delete(live, rapid.SampledFrom(all).Draw(rt, "who"))
				}
			},
			"free": func(rt *rapid.T) {
				if err := p.Drop(); err != nil {
					rt.Fatal(err)
				}
				for _, h := range p.had {
					if !live[h.Starter.ID] {
						rt.Fatalf("%v has ended and holds %s", h.Starter, h.ID)
					}
				}
			},
			"another daemon": func(*rapid.T) { start() },
			"another agent": func(rt *rapid.T) {
				next := at(p.file)
				if err := next.Read(); err != nil {
					rt.Fatal(err)
				}
				if d := cmp.Diff(p.had, next.had); d != "" {
					rt.Fatal(d)
				}
				next.processes = p.processes
				p = next
			},
			"": func(rt *rapid.T) {
				by := map[string]starter.Starter{}
				for _, h := range p.had {
					if other, twice := by[h.ID]; live[h.Starter.ID] && twice {
						rt.Fatalf("%v and %v hold %s", h.Starter, other, h.ID)
					} else if live[h.Starter.ID] {
						by[h.ID] = h.Starter
					}
				}
				if len(by) != len(live) {
					rt.Fatalf("%d live slots hold %d partitions", len(live), len(by))
				}
			},
		})
	})
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"made":[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","daemon":{"PID":7,"Started":9},"partitions":["GPU-0/x"],"multiprocessors":32}],
		"held":[{"starter":{"PID":8,"Started":1,"Slot":"slot1_1"},"gpu":"GPU-00000000-0000-4000-8000-000000000000","partition":"GPU-0/x"}]}`))
	const two = `{"made":[],"held":[{"starter":{"PID":8,"Started":1},"gpu":"%[1]s","partition":"x"},{"starter":{"PID":9,"Started":1},"gpu":"%[1]s","partition":"x"}]}`
	f.Add(fmt.Appendf(nil, two, uuid(0)))
	f.Add([]byte(`{"made":[],"held":[]}`))
	f.Add([]byte(`{"made":null} {}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := store.Decode[saved](b, "")
		if err != nil || all.check() != nil {
			return
		}
		p := at(filepath.Join(t.TempDir(), "p"))
		for _, s := range all.Made {
			p.made[s.GPU] = s
		}
		by := map[string]bool{}
		for _, h := range all.Held {
			if by[string(h.GPU)+h.ID] {
				t.Fatalf("two hold %s", h.ID)
			}
			by[string(h.GPU)+h.ID] = true
			p.had[h.key()] = h
		}
		if len(p.made)+len(p.had) == 0 {
			return
		}
		if err := p.Write(); err != nil {
			t.Fatal(err)
		}
		next := at(p.file)
		if err := next.Read(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if d := cmp.Diff(p.had, next.had) + cmp.Diff(p.made, next.made); d != "" {
			t.Fatal(d)
		}
	})
}

// A partition of a job that came to nothing goes back; one that the job had before stays.
func TestUndo(t *testing.T) {
	p := at(filepath.Join(t.TempDir(), "p"))
	daemon := process.ID{PID: 1}
	if err := p.note(set{GPU: uuid(0), Daemon: daemon, IDs: []string{"a"}, SMs: 32}); err != nil {
		t.Fatal(err)
	}
	s := starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	p.processes = runs{s.ID: true}
	undo := p.Take(s, uuid(0), offer(p, s, daemon))
	if undo == nil || p.HasFree(uuid(0), daemon) || *p.SMs(s, uuid(0)) != 32 {
		t.Errorf("%+v", p.had)
	}
	if p.Take(s, uuid(0), "a") != nil {
		t.Error("what the job has is new to it")
	}
	undo()
	if !p.HasFree(uuid(0), daemon) || p.SMs(s, uuid(0)) != nil {
		t.Errorf("%+v", p.had)
	}
}
