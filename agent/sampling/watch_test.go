package sampling

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

var errHangs = errors.New("nvmlDeviceGetMemoryInfo has not returned")

// TestUnseen: a GPU whose jobs' memory has not been read for two intervals takes no new jobs,
// whatever the others do. That is logged once and is a metric. It opens with the next sample.
func TestUnseen(t *testing.T) {
	n := newNode(t, 2)
	n.loop.looks.begin(n.clock)
	var unseen map[gpu.UUID]time.Time
	// want says which GPUs must be unseen now, and how many warnings there were up to now.
	want := func(when string, lines int, gpus ...bool) {
		t.Helper()
		unseen = n.loop.check(unseen, n.clock)
		for i, is := range gpus {
			why := n.loop.Unseen(n.node, uuid(i), n.clock)
			if _, has := unseen[uuid(i)]; has != is || strings.Contains(why, "has not been read for more than 2s") != is {
				t.Errorf("%s: GPU %d is unseen: %v, want %v; closed: %q", when, i, has, is, why)
			}
			if sees := n.loop.Sees(n.node, &n.node.Plan.GPUs[i], n.clock); sees != gpu.Known(!is) {
				t.Errorf("%s: GPU %d: the metric is %+v", when, i, sees)
			}
		}
		if got := strings.Count(n.log.String(), "the budget watch does not see"); got != lines {
			t.Errorf("%s: %d warnings, want %d:\n%s", when, got, lines, n.log.String())
		}
	}
	n.sample(t)
	want("at first", 0, false, false)
	good := n.readings[1]
	n.readings[1] = gpu.Reading{GPU: uuid(1), Err: errHangs}
	for range 2 {
		n.sample(t)
	}
	want("two intervals after", 0, false, false)
	n.sample(t)
	want("GPU 1 hangs", 1, false, true)
	want("GPU 1 hangs on", 1, false, true)
	if !strings.Contains(n.log.String(), errHangs.Error()) || n.woken != 1 {
		t.Errorf("woken %d times; the log:\n%s", n.woken, n.log.String())
	}
	n.readings[1] = good
	n.sample(t)
	want("the driver answers", 1, false, false)
	if !strings.Contains(n.log.String(), "sees a GPU again") || n.woken != 2 {
		t.Errorf("woken %d times; the log:\n%s", n.woken, n.log.String())
	}
	n.clock = n.clock.Add(2*time.Second + 1)
	want("Run waits for the driver", 3, true, true)
}

// TestNothingRestsOnSamples: where no budget rests on them, it is not known whether they see a GPU.
func TestNothingRestsOnSamples(t *testing.T) {
	for name, bend := range map[string]func(n *fakeNode){
		"before the first":        func(n *fakeNode) { n.loop.looks = looks{} },
		"a whole GPU":             func(n *fakeNode) { n.node.Plan.GPUs[0].Mode = config.ModeWhole },
		"jobs are not held":       func(n *fakeNode) { n.node.Config.Budgets.Enforce = config.EnforceReport },
		"the driver limits":       func(n *fakeNode) { n.node.CgroupLimits, n.limited[uuid(0)] = true, true },
		"a node out of service":   func(n *fakeNode) { n.node.Quiet = true },
		"no control daemon is up": func(n *fakeNode) { clear(n.node.Daemons) },
	} {
		n := newNode(t, 1)
		n.loop.looks.begin(n.clock)
		g := &n.node.Plan.GPUs[0]
		n.clock = n.clock.Add(time.Minute)
		if n.loop.Sees(n.node, g, n.clock) != gpu.Known(false) {
			t.Fatal("a minute without a sample, and it is seen")
		}
		if bend(n); n.loop.Sees(n.node, g, n.clock).Known || n.loop.Unseen(n.node, uuid(0), n.clock) != "" {
			t.Errorf("%s: known", name)
		}
	}
}

// TestEnforces: sampling enforces budgets only where a sample has processes and memory, and jobs are
// held.
func TestEnforces(t *testing.T) {
	n := newNode(t, 2)
	n.readings[1].Processes = gpu.Measured[[]gpu.DeviceProcess]{}
	n.sample(t)
	if !n.loop.Enforces(n.node, uuid(0)) || n.loop.Enforces(n.node, uuid(1)) || n.loop.Enforces(n.node, uuid(7)) {
		t.Error("of three GPUs, one's processes are read")
	}
	if n.node.Config.Budgets.Enforce = config.EnforceReport; n.loop.Enforces(n.node, uuid(0)) {
		t.Error("jobs are only reported")
	}
}
