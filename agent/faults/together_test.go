package faults

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods of the tracker may be called at one time.
func TestTogether(t *testing.T) {
	u, now := gpu.UUID("GPU-00000000-0000-4000-8000-000000000001"), time.Now()
	together.Methods(t, &Tracker{}, u, now, gpu.Event{GPU: u, XID: 79, Time: now}, gpu.KernelXID{PID: 7},
		[]Sight{{Condition: gpu.Condition{GPU: u}}}, []gpu.UUID{u}, "cannot be read", func() error { return nil },
		[]Saved{{GPU: u, Class: ClosedBroken, Since: now}})
}
