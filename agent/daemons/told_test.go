package daemons

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// TestForeignChanges: limits that differ are somebody else's doing only where they were right before, and
// the same were wanted.
func TestForeignChanges(t *testing.T) {
	well := State{Checked: mps.Checked{PID: 7}, Wanted: mps.Wanted{GPU: uuid(0), Limit: 4096}}
	failed, gone, other, differs := well, well, well, well
	failed.Err = errors.New("no answer")
	gone.Checked.PID = 0
	other.Wanted.Limit = 2048
	differs.Err = &mps.Error{Differs: []mps.Difference{{Setting: "limit"}, {Setting: "threads"}}}
	for name, c := range map[string]struct {
		last, now State
		want      int
	}{
		"it was well":             {well, differs, 2},
		"it is well":              {well, well, 0},
		"another error":           {well, failed, 0},
		"it was not well":         {failed, differs, 0},
		"it did not run":          {gone, differs, 0},
		"another limit is wanted": {other, differs, 0},
		"nothing was before":      {State{}, differs, 0},
	} {
		n := newNode(t, 1)
		n.reportForeignChanges(map[gpu.UUID]State{uuid(0): c.last}, map[gpu.UUID]State{uuid(0): c.now})
		if n.counts["change"] != c.want {
			t.Errorf("%s: %d changes, want %d", name, n.counts["change"], c.want)
		}
	}
}

// TestServersGetLimits: the log says whether running servers took their daemon's limits.
func TestServersGetLimits(t *testing.T) {
	for says, refuses := range map[string]error{
		`level=WARN msg="MPS servers had other limits`: nil, `level=ERROR msg="MPS servers keep other limits`: errors.New("no answer"),
	} {
		n := newNode(t, 1).tested()
		n.fails["set servers"], n.daemons[uuid(0)].stale = refuses, []int{70}
		if n.round(); strings.Count(n.log.String(), "other limits than their daemon") != 1 || !strings.Contains(n.log.String(), says) {
			t.Errorf("%v: logged %s", refuses, &n.log)
		}
	}
}

// TestLeftoversAreTold: a client of a faulted server that had to be killed is in the history. One that ended by itself
// is no word, and one that is left is an error.
func TestLeftoversAreTold(t *testing.T) {
	pid, ended := sleeps(t)
	for i, c := range []struct {
		name   string
		holder gpu.UUID
		logs   string
		noted  int
	}{
		{"of no slot there", uuid(9), "a client of a faulted server was not ended", 0},
		{"of a slot there", uuid(1), "a client that kept its server in FAULT was killed", 1},
		{"ended", uuid(2), "", 0},
	} {
		n := newNode(t, 3)
		n.owners[pid], n.started[pid] = jobs.Job{Starter: starter.Starter{Slot: "slot1_1"}, GPU: c.holder}, 1
		faulted := State{Servers: ServerState{faulted: time.Unix(1, 0), clients: []int{pid}}}
		faulted.Checked.At = time.Now()
		n.endLeftovers(map[gpu.UUID]State{uuid(i): faulted}, time.Now()) // one look a GPU at a time
		if logs := n.log.String(); !strings.Contains(logs, c.logs) || (logs == "") != (c.logs == "") || len(n.noted) != c.noted {
			t.Errorf("%s: logged %q, noted %q", c.name, logs, n.noted)
		}
		if c.noted > 0 {
			<-ended
		}
	}
}
