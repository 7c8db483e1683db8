package agent

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestUnansweredDaemon: a control daemon that answers nobody, as one whose connection an ended
// job passed on, is restarted after a minute without a job on its GPU, and on no other.
func TestUnansweredDaemon(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(ta *testAgent, r *gpu.Reading)
		want bool
	}{
		"an idle GPU": {func(*testAgent, *gpu.Reading) {}, true},
		"a job": {func(ta *testAgent, _ *gpu.Reading) {
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = false })
			ta.apply(false)
			ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
		}, false},
		"a job of which the startd has not told": {func(ta *testAgent, _ *gpu.Reading) {
			ta.jobs.Await([]starter.Starter{ta.proc.starter(100, "slot1_1")})
		}, false},
		"an MPS client of no job": {func(_ *testAgent, r *gpu.Reading) {
			r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 300, MPSClient: true}})
		}, false},
		"processes that are not known": {func(_ *testAgent, r *gpu.Reading) {
			r.Processes = gpu.Measured[[]gpu.DeviceProcess]{}
		}, false},
		"an old sample": {func(_ *testAgent, r *gpu.Reading) { r.At = r.At.Add(-time.Hour) }, false},
		"it answers in between": {func(ta *testAgent, _ *gpu.Reading) {
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = false })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			ta.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "left", UID: 1000})
			restarted := func() int { return ta.daemons.restarts(uuid(0)) }
			round := func(at time.Time) {
				ta.apply(false)
				v := ta.view.Load()
				ta.restartUnanswered(t.Context(), &v.plan, v.guards, at)
			}
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
			begin := time.Now()
			round(begin)
			r := gpu.Reading{GPU: uuid(0), At: begin.Add(unansweredFor)}
			r.Processes = gpu.Known([]gpu.DeviceProcess{})
			c.bend(ta, &r)
			ta.sampler = usage.NewSampler(usage.Options{Source: &fakeUsage{[]gpu.Reading{r}}, Site: site{ta.Agent}, Interval: time.Second,
				Proc: ta.proc.Root, Now: func() time.Time { return r.At }})
			ta.sampler.Round(t.Context())
			round(begin.Add(unansweredFor - time.Second))
			if n := restarted(); n != 0 {
				t.Fatalf("restarted %d times within %s", n, unansweredFor)
			}
			round(begin.Add(unansweredFor + time.Second))
			if n := restarted(); n != map[bool]int{true: 1}[c.want] {
				t.Errorf("restarted %d times", n)
			}
			if n := ta.daemons.restarts(uuid(1)); n != 0 {
				t.Errorf("the other GPU's daemon was restarted %d times", n)
			}
			if !c.want {
				r.At = r.At.Add(3 * unansweredFor)
				ta.sampler.Round(t.Context())
				round(begin.Add(4*unansweredFor + time.Second))
				if n := restarted(); n != 0 {
					t.Errorf("restarted %d times later", n)
				}
				return
			}
			if why := ta.reason(0); why != "" {
				t.Errorf("the GPU is closed: %s", why)
			}
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
			round(begin.Add(2*unansweredFor + 2*time.Second))
			if n := restarted(); n != 1 {
				t.Errorf("restarted %d times at once", n)
			}
		})
	}
}
