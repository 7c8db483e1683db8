package observe

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestDuty: a node begins to be observed only where nothing of another mode is left, and
// neither begins nor ceases while an agent runs.
func TestDuty(t *testing.T) {
	watched, sharing := &plan.Plan{Observe: true}, &plan.Plan{}
	for name, c := range map[string]struct {
		inForce, next *plan.Plan
		before        bool
		file          func(p config.Paths) string
		text          string // of the file
		want          string
	}{
		"it goes on":           {inForce: watched, next: watched},
		"it shares":            {inForce: sharing, next: sharing},
		"it ceases":            {inForce: watched, next: sharing, want: "restart gpuslotd condor"},
		"it begins":            {inForce: sharing, next: watched, want: "is set up for another mode"},
		"first, sharing":       {next: sharing, before: true},
		"first":                {next: watched},
		"first, after another": {next: watched, before: true, want: "plan.json"},
		"HTCondor's is there":  {next: watched, file: config.Paths.CondorConfig, want: "execution-point.conf"},
		"it is kept closed":    {next: watched, file: startd.ClosedFile, want: "condor-closed.conf"},
		"modes are not readable": {
			next: watched, file: modes.File, want: "undo.json",
		},
		"a compute mode is to be restored": {
			next: watched, file: modes.File, text: `{"schema":"gpuslot-undo/1","compute_modes":{"GPU-00000000-0000-4000-8000-000000000000":"default"}}`, want: "undo.json",
		},
		"a MIG mode is to be restored": {
			next: watched, file: modes.File, text: `{"schema":"gpuslot-undo/1","mig_modes":{"GPU-00000000-0000-4000-8000-000000000000":false}}`, want: "undo.json",
		},
		"no mode is to be restored": {next: watched, file: modes.File, text: `{"schema":"gpuslot-undo/1"}`},
	} {
		p := config.Default().Paths
		p.Run, p.State = t.TempDir(), t.TempDir()
		if err := os.Mkdir(filepath.Dir(p.CondorConfig()), 0o755); err != nil {
			t.Fatal(err)
		}
		if c.file != nil {
			if err := os.WriteFile(c.file(p), []byte(cmp.Or(c.text, "{")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Duty(c.inForce, *c.next, c.before, p)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if Refuse(watched) == nil || Refuse(sharing) != nil {
		t.Error("only an observed node refuses to keep jobs away")
	}
}

// TestJobs: starters are found while the node is observed.
func TestJobs(t *testing.T) {
	tree := proctree.New(t)
	tree.Starter(100, "slot1_1")
	node := starter.Node{FS: process.FS{Root: tree.Root}, Own: uint32(os.Getuid())}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var observed atomic.Bool
		found := 0
		go Jobs{
			Node: node, Observed: func() (bool, time.Duration) { return observed.Load(), time.Second },
			Discover: func(s []starter.Starter) { found += len(s) },
		}.Run(ctx)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if found > 0 {
			t.Errorf("%d jobs on a node that is not observed", found)
		}
		observed.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if found != 1 {
			t.Errorf("%d jobs, want 1", found)
		}
		cancel()
	})
}
