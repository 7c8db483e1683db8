package culprits

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/together"
)

const (
	gpu0 = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	gpu1 = gpu.UUID("GPU-00000000-0000-4000-8000-000000000001")
)

const logStamp = "[2026-11-21 10:33:22.201 Control  4005] "

func faultLine(pid int) string {
	return fmt.Sprintf("%sVolta MPS Server: Client process %d encountered a fatal GPU error.", logStamp, pid)
}

func TestAccused(t *testing.T) {
	got := accused([]string{
		"x", logStamp + "Volta MPS Server: Server is handling a fatal GPU error.", faultLine(9),
		logStamp + "Volta MPS: Server is handling a fatal GPU error. Client 8 encountered it", faultLine(9),
	})
	if !slices.Equal(got, []int{9, 8}) {
		t.Errorf("accused are %v", got)
	}
}

// slowOwners have no jobs, and say that when the test lets them.
type slowOwners struct {
	let   chan struct{}
	asked *atomic.Int32
}

func (o slowOwners) StarterOf(int) (starter.Starter, bool) {
	o.asked.Add(1)
	<-o.let
	return starter.Starter{}, false
}

func (slowOwners) HeldBy(starter.Starter) []jobs.Job { return nil }

// TestManyAccused: of very many processes that a log names few are asked about. The kernel may keep their answers. What a
// sample showed counts all the same.
func TestManyAccused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := slowOwners{make(chan struct{}), new(atomic.Int32)}
		f := New(o)
		f.Note(jobs.Job{ID: "7.0", GPU: gpu0}, []int{2500}, time.Now())
		var lines []string
		for pid := range 2000 {
			lines = append(lines, faultLine(1000+pid))
		}
		if got := f.Of(gpu0, lines); !strings.HasPrefix(got, "process 2500 of job 7.0") {
			t.Error(got)
		}
		close(o.let)
		synctest.Wait()
		if n := o.asked.Load(); n != mostAsked {
			t.Errorf("%d are asked about", n)
		}
		time.Sleep(time.Hour) // the look is forgotten
	})
}

// TestAccusedOfNobodyKnown: what a sample showed is named without a question, if it is named first. While the kernel does
// not say whose a process is, it is not said to be of no job.
func TestAccusedOfNobodyKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := slowOwners{make(chan struct{}), new(atomic.Int32)}
		f := New(o)
		f.Note(jobs.Job{ID: "7.0", GPU: gpu0}, []int{5}, time.Now())
		if got := f.Of(gpu0, []string{faultLine(5), faultLine(6)}); !strings.HasPrefix(got, "process 5 of job 7.0") || o.asked.Load() > 0 {
			t.Errorf("%q, %d are asked about", got, o.asked.Load())
		}
		if got := f.Of(gpu0, []string{faultLine(6)}); got != "" {
			t.Errorf("not known yet: %q", got)
		}
		close(o.let)
		synctest.Wait()
		if got := f.Of(gpu0, []string{faultLine(6)}); got != "process 6, which is of no job of gpuslot there" {
			t.Errorf("known: %q", got)
		}
		time.Sleep(time.Hour) // the look is forgotten
	})
}

// holders are the jobs of processes that run, by PID: what each holds of the node's GPUs.
type holders map[int][]jobs.Job

func (h holders) StarterOf(pid int) (starter.Starter, bool) {
	return starter.Starter{ID: process.ID{PID: pid}}, len(h[pid]) > 0
}

func (h holders) HeldBy(s starter.Starter) []jobs.Job { return h[s.PID] }

// TestNamed: it is the first process that the log names of a job on the GPU, with what is known of that job.
func TestNamed(t *testing.T) {
	job := func(u gpu.UUID, slot, id, owner string) jobs.Job {
		return jobs.Job{Starter: starter.Starter{Slot: slot}, GPU: u, ID: id, Owner: owner}
	}
	f := New(holders{
		1: {job(gpu0, "slot1_1@wn1", "1.0", "alice")},
		2: {job(gpu1, "slot1_2@wn1", "2.0", "bob")},
		3: {job(gpu1, "slot1_3@wn1", "3.0", ""), job(gpu0, "slot1_3@wn1", "3.0", "")},
	})
	f.Note(job(gpu0, "slot1_4@wn1", "", "dave"), []int{4}, time.Now())
	for name, c := range map[string]struct {
		pids []int
		want string
	}{
		"nobody":                          {nil, ""},
		"it runs":                         {[]int{1}, "process 1 of job 1.0 (slot1_1, alice)"},
		"it has another GPU":              {[]int{2}, "process 2, which is of no job of gpuslot there"},
		"it has this GPU, too":            {[]int{3}, "process 3 of job 3.0 (slot1_3)"},
		"a sample showed it":              {[]int{4}, "process 4 of a job (slot1_4, dave)"},
		"the second":                      {[]int{2, 1}, "process 1 of job 1.0 (slot1_1, alice)"},
		"before one that a sample showed": {[]int{3, 4}, "process 3 of job 3.0 (slot1_3)"},
	} {
		var lines []string
		for _, pid := range c.pids {
			lines = append(lines, faultLine(pid))
		}
		if got := f.Of(gpu0, lines); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTogether: samples come while logs are read.
func TestTogether(t *testing.T) {
	together.Methods(t, New(holders{}), jobs.Job{GPU: gpu0}, []int{1, 2}, time.Now(), gpu0, []string{faultLine(1)})
}

// TestSeenAreForgotten, so that their number is bounded, and a newer job's
// process of the same number counts.
func TestSeenAreForgotten(t *testing.T) {
	f := New(nil)
	at := time.Unix(1000, 0)
	job := func(name string) jobs.Job { return jobs.Job{ID: name, GPU: gpu0} }
	f.Note(job("1.0"), []int{5, 6}, at)
	f.Note(job("2.0"), []int{6}, at.Add(kept))
	if r, ok := f.seenOf(6, gpu0); !ok || r.ID != "2.0" {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := f.seenOf(5, gpu1); ok {
		t.Error("a process is of another GPU, too")
	}
	if f.ForgetUnseen(at.Add(kept)); len(f.seen) != 2 {
		t.Errorf("it is forgotten too early: %v", f.seen)
	}
	f.ForgetUnseen(at.Add(kept + 1))
	if _, ok := f.seenOf(5, gpu0); ok || len(f.seen) != 1 {
		t.Errorf("it is remembered for ever: %v", f.seen)
	}
}
