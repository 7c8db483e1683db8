package budget

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// TestHiddenCgroup: where a look for a job's cgroup does not end, as the job's account can bring about, the limits of
// other jobs go on. What is not seen is not repaired.
func TestHiddenCgroup(t *testing.T) {
	c := newNode(t)
	hidden := c.job(100, "slot1_1", 4096)
	c.round()
	l, _ := c.of(jobs.KeyOf(hidden, uuid(0)))
	hold, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		deep.Begin(l.lookKey(), func() bool { <-hold; return true }).Within(deep.Patient)
	}()
	<-ended // it was waited for in vain
	if err := os.Rename(c.leaf(hidden), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	other := c.job(200, "slot1_2", 2048)
	c.round()
	if _, _, err := c.repair(t.Context(), l); !errors.Is(err, errHidden) {
		t.Errorf("repaired: %v", err)
	}
	c.limits(c.leaf(other), "soft 2048 hard 2048")
	c.limits(c.htcondor(), "soft 6144 hard max")
	if s, seen := l.see(); seen {
		t.Errorf("seen: %+v", s)
	}
	close(hold)
}

// TestHiddenTogether: the looks for the cgroups of all jobs, with a limit and without, begin before the first is waited
// for. A pipe in the place of a file of each job's slice stands for what keeps a look from its end.
func TestHiddenTogether(t *testing.T) {
	c := newNode(t)
	limited := []starter.Starter{c.job(100, "slot1_1", 1024), c.job(101, "slot1_2", 1024)}
	c.round()
	var first deep.Looking[sight]
	hide := func(s starter.Starter) (pipe string) {
		pipe = filepath.Join(filepath.Dir(c.leaf(s)), "cgroup.controllers")
		_ = os.Remove(pipe)
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		return pipe
	}
	var pipes []string
	for _, s := range append(limited, c.job(102, "slot1_3", 1024), c.job(103, "slot1_4", 1024)) {
		pipes = append(pipes, hide(s))
	}
	l, _ := c.of(jobs.KeyOf(limited[0], uuid(0)))
	first = l.look(deep.Begin[sight])
	ended := make(chan struct{})
	go func() { defer close(ended); c.round() }()
	for i, pipe := range []string{pipes[1], pipes[3]} {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for its look
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if i == 0 && first.Hidden() {
			t.Error("the second look began after the first was waited for")
		}
	}
	<-ended
	for _, pipe := range pipes {
		if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			_ = w.Close()
		}
	}
}
