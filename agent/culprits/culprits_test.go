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
	f.ForgetUnseen(at.Add(kept + 1))
	if _, ok := f.seenOf(5, gpu0); ok || len(f.seen) != 1 {
		t.Errorf("it is remembered for ever: %v", f.seen)
	}
}
