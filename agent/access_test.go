package agent

import (
	"sync"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// TestAccessOfANewJob: an account's next job is let in while a sweep shuts the account out
// after the job before. The job has its access from its admission to its end.
func TestAccessOfANewJob(t *testing.T) {
	f, pipes := newFakeProc(t), newFakeAccess()
	table := newJobTable(f.fs(), pipes)
	stop, swept := make(chan struct{}), sync.WaitGroup{}
	swept.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := table.sweep(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 300 {
		s := f.starter(1000+i, "slot1_1")
		_, _ = table.Admit(func(jobs *jobView) (*api.Grant, *api.Refusal) {
			jobs.enter(Running{Starter: s, GPU: uuid(0), Account: starter.Account{UID: 1000, Known: true}}, true)
			return nil, nil
		})
		if err := table.access.give(uuid(0), 1000); err != nil {
			t.Fatal(err)
		}
		if _, err := table.sweep(); err != nil || !pipes.has(uuid(0), 1000) {
			t.Fatalf("job %d was admitted and has no access (%v)", i, err)
		}
		f.End(s.PID)
	}
	close(stop)
	swept.Wait()
	if _, err := table.sweep(); err != nil || pipes.has(uuid(0), 1000) {
		t.Errorf("the account keeps its access after its last job (%v)", err)
	}
}
