package isolation

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods may be called at one time, while jobs come and go.
func TestTogether(t *testing.T) {
	n := newNode(t)
	s, other := n.job(100, 1), n.starter(200, 2)
	n.cgroup(condorService)
	n.comes(s, other, n.starter(300, 3))
	together.Methods(t, n.Nodes, now(), time.Now(), starter.Caller{Starter: s}, s, n.table.HeldBy(s), n.leaf(s), together.Except{"Run", "Look"},
		together.Call(func() {
			n.enter(starter.Cgroup{Path: "another slot's"}, heldNodes{starter: s})
			n.has(other)
		}),
		together.Call(func() {
			n.admit(other, 2)
			if err := n.CloseAtStart(now(), other, n.table.HeldBy(other), n.leaf(other)); err != nil {
				t.Error(err)
			}
		}),
		together.Call(func() {
			n.table.Release(s, mig(1))
			n.table.Admit(starter.Caller{Starter: s, Hook: true}, func(*jobs.View) []jobs.Job {
				return []jobs.Job{{Starter: s, GPU: mig(1)}}
			})
		}))
	if n.wall.overlapped.Load() {
		t.Error("two rules were changed at one time")
	}
}
