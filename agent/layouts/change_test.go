package layouts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestPaceOfAChange: the loop beats at its pace during a change, and the daemons are probed at theirs.
func TestPaceOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		at := n.now()
		n.beats, n.probes = 0, 0
		interval := at.Config.Health.Interval
		out, err := n.change(t.Context(), &at, testGPU, func(context.Context, gpu.UUID) (mig.Outcome, error) {
			time.Sleep(3*interval + changePace/2)
			return mig.Outcome{End: mig.ReachedWanted}, errNo
		})
		if out.End != mig.ReachedWanted || !errors.Is(err, errNo) || n.beats != int(3*interval/changePace) || n.probes != 3 {
			t.Errorf("%+v, %v, %d beats, %d probes", out, err, n.beats, n.probes)
		}
	})
}

// TestTimesOfAChange: a change has some time, and some more to go back, then it is left alone.
func TestTimesOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		at, begun := n.now(), time.Now()
		limit, hangs := make(chan time.Duration, 1), make(chan struct{})
		out, err := n.change(t.Context(), &at, testGPU, func(ctx context.Context, _ gpu.UUID) (mig.Outcome, error) {
			<-ctx.Done()
			limit <- time.Since(begun)
			<-hangs
			return mig.Outcome{}, nil
		})
		if took, had := time.Since(begun), <-limit; had != changeLimit || took != changeAbandoned || out.End != mig.Unchanged || err == nil {
			t.Errorf("it had %s, and was left alone after %s: %+v, %v", had, took, out, err)
		}
		at.Plan.MIG = nil // no layout is made
		for n.Round(t.Context(), at); ; n.Round(t.Context(), at) {
			for _, g := range []gpu.UUID{testGPU, n.place("3g.20gb@4").UUID, n.place("3g.20gb@4").Device} {
				if hangs := n.hang[testGPU] != nil; (n.ending[g] != "") != hangs {
					t.Errorf("it hangs: %t, new jobs are kept off %v", hangs, n.ending)
				}
			}
			if n.hang[testGPU] == nil {
				break
			}
			close(hangs)
			synctest.Wait()
			_, _ = n.change(t.Context(), &at, testGPU, n.executor.Recover)
		}
	})
}

// TestClosedForOneMoreRound: a job that asked during the round in which its device or its GPU went may still be let in by
// the plan before. It is not until the next round.
func TestClosedForOneMoreRound(t *testing.T) {
	n := newNode(t, "", "")
	for _, c := range []struct{ layout, goes string }{{`"3g.20gb@4, 1g.5gb@0"`, ""}, {`"3g.20gb@4, 1g.5gb@1"`, "1g.5gb@0"}, {"", "3g.20gb@4"}} {
		goes := []gpu.UUID{testGPU}
		if c.goes != "" {
			goes = []gpu.UUID{n.place(c.goes).UUID, n.place(c.goes).Device}
		}
		n.divide(c.layout, "")
		n.round()
		for _, u := range goes {
			if n.Leaving()[u] == "" {
				t.Errorf("%s is open in the round in which it goes: %v", u, n.Leaving())
			}
		}
		if c.layout != "" && (n.Leaving()[n.place("3g.20gb@4").UUID] != "" || n.place("3g.20gb@4").Device == "") {
			t.Errorf("what stays is closed: %v", n.Leaving())
		}
		if n.round(); len(n.Leaving()) > 0 {
			t.Errorf("after the next round: %v", n.Leaving())
		}
	}
}

// TestDegradedTakesNoJobs: while a GPU has neither layout, all its devices take no new jobs: any may have to go.
func TestDegradedTakesNoJobs(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	h := &unsteady{GPU: n.gpu}
	n.executor.Hardware = h
	stays, goes := n.place("3g.20gb@4"), n.place("1g.5gb@0")
	all := []gpu.UUID{testGPU, stays.UUID, stays.Device, goes.UUID, goes.Device}
	n.gpu.Happens = func(string) { h.err = errNo }
	n.divide(`"3g.20gb@4, 1g.5gb@1"`, "")
	for _, closed := range [][]gpu.UUID{all, all[:3]} { // what went is nobody's by then
		n.round()
		for _, u := range closed {
			if !strings.Contains(problems(n.out), "no") || n.Leaving()[u] == "" {
				t.Errorf("%q, %s is open", n.out.Problems, u)
			}
		}
	}
	h.err, n.gpu.Happens = nil, func(string) {}
	clear(n.failed) // some time later
	n.round()
	if n.round(); len(n.Leaving()) > 0 || n.has() != "1g.5gb@1 3g.20gb@4" {
		t.Errorf("there is %s, %v leave, %q", n.has(), n.Leaving(), n.out.Problems)
	}
}

// TestUnfinished: a change that an agent or "mig apply" left waits for jobs on all that one of its layouts lacks,
// before it is ended first and before the next one. Meanwhile no job comes there.
func TestUnfinished(t *testing.T) {
	for _, known := range []bool{false, true} { // the agent is new, or knows of the change
		n := newNode(t, `"3g.20gb@4, 1g.5gb@0, 1g.5gb@1"`, "")
		n.job("slot1_1", "1g.5gb@0")
		job, idle, kept := n.place("1g.5gb@0"), n.place("1g.5gb@1"), n.place("3g.20gb@4")
		was := *n.journal(t).Applied
		lacks := mig.Wanted{Enabled: true, Layout: was.Layout[:1]}
		if got := n.gpu.S.Chip.Format(lacks.Layout); got != "3g.20gb@4" {
			t.Fatal(got)
		}
		n.begin(t, mig.Change{Former: was, Wanted: lacks})
		if n.recovered[testGPU] = known; known {
			n.divide(`"3g.20gb@4, 1g.5gb*3"`, "")
		}
		n.gpu.Happens = func(what string) { t.Error(what) }
		for _, n.unknown = range []string{"the job in slot2_1 is not known", ""} {
			if known && n.unknown != "" {
				continue // no layout is made then
			}
			want := cmp.Or(n.unknown, "slot1_1 has a job there")
			if out := n.round(); !strings.Contains(problems(out), "the unfinished change of the MIG layout of "+string(testGPU)+" waits: "+want) {
				t.Errorf("known %t: %q", known, out.Problems)
			}
			for _, u := range []gpu.UUID{job.UUID, job.Device, idle.UUID, idle.Device, kept.UUID, kept.Device} {
				if goes := u != kept.UUID && u != kept.Device; (n.Leaving()[u] != "") != goes {
					t.Errorf("known %t: %v leave", known, n.Leaving())
				}
			}
		}
		n.gpu.Happens, n.running = func(string) {}, nil
		n.round()
		if n.round(); n.journal(t).Change != nil || len(n.Leaving()) > 0 || len(n.out.Problems) > 0 {
			t.Errorf("known %t: %+v, %v leave, %q", known, n.journal(t), n.Leaving(), n.out.Problems)
		}
	}
}

// TestUnfinishedOfAnEarlierAgent: where another layout is planned since, the place of a job is in no plan.
func TestUnfinishedOfAnEarlierAgent(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	n.job("slot1_1", "1g.5gb@0")
	n.running[0].Device = ""
	n.begin(t, mig.Change{Former: *n.journal(t).Applied, Wanted: mig.Wanted{Enabled: true}})
	n.recovered[testGPU] = false
	n.divide(`"7g.40gb"`, "")
	n.gpu.Happens = func(what string) { t.Error(what) }
	if out := n.round(); !strings.Contains(problems(out), "slot1_1 has a job there") {
		t.Errorf("%q", out.Problems)
	}
}

// TestUnfinishedDivision: jobs on a GPU that is not divided yet are waited for, too.
func TestUnfinishedDivision(t *testing.T) {
	n := newNode(t, "", "")
	n.begin(t, mig.Change{Wanted: mig.Wanted{Enabled: true}})
	n.recovered[testGPU], n.running = false, []jobs.Job{{Starter: starter.Starter{Slot: "slot1_1"}, GPU: testGPU}}
	n.gpu.Happens = func(what string) { t.Error(what) }
	if out := n.round(); !strings.Contains(problems(out), "slot1_1 has a job there") || n.Leaving()[testGPU] == "" {
		t.Errorf("%q, %v leaves", out.Problems, n.Leaving())
	}
}

func (n *node) journal(t *testing.T) mig.Journal {
	t.Helper()
	j, err := mig.ReadJournal(n.paths.State, testGPU)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// begin leaves a change that has not ended.
func (n *node) begin(t *testing.T, c mig.Change) {
	t.Helper()
	j := n.journal(t)
	j.Change = &c
	text, err := json.Marshal(j)
	file := mig.JournalFile(n.paths.State, testGPU)
	if err := cmp.Or(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestEvict: who keeps a layout from being changed, and is no job, does not do so for long.
func TestEvict(t *testing.T) {
	n := newNode(t, `"3g.20gb@0"`, "")
	blocked := errors.Join(errors.New("x"), fmt.Errorf("y: %w", mig.BlockedError{Err: gpu.ErrInUse, Holders: []gpu.Holder{{Command: "not all were looked at"}}}))
	for _, c := range []struct {
		err  error
		want []gpu.UUID
	}{{nil, nil}, {errors.New("x"), nil}, {blocked, []gpu.UUID{testGPU}}} {
		_, err := n.change(t.Context(), &Node{}, testGPU, func(context.Context, gpu.UUID) (mig.Outcome, error) { return mig.Outcome{}, c.err })
		if !errors.Is(err, c.err) || !slices.Equal(n.evicted, c.want) {
			t.Errorf("%v: evicted %v, %v", c.err, n.evicted, err)
		}
	}
}

// TestHangThatEnds: a change that hung and has ended closes its GPU no longer, also where no other layout is wanted.
// While it hangs, each round says so.
func TestHangThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4, 1g.5gb@0, 1g.5gb@1"`, "")
		n.round()
		at, hangs := n.now(), make(chan struct{})
		_, _ = n.change(t.Context(), &at, testGPU, func(context.Context, gpu.UUID) (mig.Outcome, error) {
			<-hangs
			return mig.Outcome{}, nil
		})
		for range 2 {
			if n.round(); len(n.Leaving()) == 0 || !strings.Contains(fmt.Sprint(n.out.Problems), "hangs") {
				t.Errorf("it hangs: closed %v, problems %q", n.Leaving(), n.out.Problems)
			}
		}
		close(hangs)
		synctest.Wait()
		if n.round(); len(n.Leaving()) > 0 || len(n.out.Problems) > 0 {
			t.Errorf("it has ended: closed %v, problems %q", n.Leaving(), n.out.Problems)
		}
	})
}

// TestDegradedByAnother: gpuslot mig apply left a GPU degraded, whose layout gpuslotd had reached. The next round brings
// it to its layout again. A GPU without a layout stays closed, and each round says why.
func TestDegradedByAnother(t *testing.T) {
	for _, planned := range []bool{true, false} {
		n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
		n.round()
		journal, err := mig.ReadJournal(n.executor.Dir, testGPU)
		if err != nil {
			t.Fatal(err)
		}
		if !planned {
			n.recovered[testGPU] = true
		}
		journal.Degraded = "NVML failed twice"
		text, err := json.Marshal(journal)
		if err == nil {
			err = os.WriteFile(mig.JournalFile(n.executor.Dir, testGPU), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		at := n.now()
		if !planned {
			at.Plan.MIG = nil
		}
		n.Round(t.Context(), at)
		out := n.Round(t.Context(), at)
		said := strings.Contains(fmt.Sprint(out.Problems), "NVML failed twice")
		if closed := n.Leaving()[testGPU] != ""; closed == planned || said == planned {
			t.Errorf("planned %t: closed %t, problems %q", planned, closed, out.Problems)
		}
	}
}
