package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/instances"
	"github.com/gpuslot/gpuslot/test/lock"
)

// TestLockOfAnother: whoever has the lock is named.
func TestLockOfAnother(t *testing.T) {
	p := config.Paths{Run: t.TempDir()}
	by := lock.By(t, filepath.Join(p.Run, "agent.lock"))
	unlock, err := lockRun(p)
	if err == nil {
		unlock()
		t.Fatal("two hold the lock")
	}
	if want := fmt.Sprintf("process %d (\"flock\") runs (state", by); !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q in it", err, want)
	}
}

// TestLockOfRun: one has it at a time. A directory that cannot be used is no lock.
func TestLockOfRun(t *testing.T) {
	p := config.Paths{Run: filepath.Join(t.TempDir(), "run")}
	for range 2 {
		unlock, err := lockRun(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lockRun(p); err == nil {
			t.Error("two hold the lock")
		}
		unlock()
	}
	file := filepath.Join(p.Run, "agent.lock")
	if err := errors.Join(os.Remove(file), os.Symlink("elsewhere", file)); err != nil {
		t.Fatal(err)
	}
	if _, err := lockRun(p); err == nil {
		t.Error("the lock is behind a link")
	}
	if _, err := lockRun(config.Paths{Run: filepath.Join(file, "below")}); err == nil {
		t.Error("a directory that cannot be made")
	}
}

// TestWithoutDriver: an agent that touches no GPU has nothing that could.
func TestWithoutDriver(t *testing.T) {
	o := Options{WaitForHardware: true, ExpectedGPUs: 8, Usage: &sourceThatHangs{}, Hardware: &fakeHardware{}}
	o.DriverMismatch = func(context.Context) (string, error) { return "", nil }
	o.MemoryLimits = func() (bool, bool) { return true, true }
	o.MIG.Hardware = instances.New(uuid(0), gpu.Chip{})
	o = o.withoutDriver(config.Paths{})
	if _, recorded := o.Hardware.(hardware.Recorded); !recorded || o.WaitForHardware || o.ExpectedGPUs > 0 || o.Usage != nil ||
		o.DriverMismatch != nil || o.MemoryLimits != nil || o.MIG.Hardware != nil {
		t.Errorf("%+v", o)
	}
}
