package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/gpuslot/gpuslot/gpu"
)

// deafAlarms is a node without a driver.
type deafAlarms struct{}

func (deafAlarms) Watch(context.Context, func(gpu.Event)) error {
	return errors.New("NVML is not installed")
}

func (deafAlarms) Conditions(context.Context, []gpu.UUID) ([]gpu.Condition, error) { return nil, nil }

// TestQuietWithoutDriver: a node that has no GPUs to plan with is told of once,
// and not for its events as well; one that has is told of both.
func TestQuietWithoutDriver(t *testing.T) {
	for planned, want := range map[bool]int{false: 0, true: 1} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			a := &Agent{log: slog.New(slog.NewTextHandler(&log, nil)), alarms: deafAlarms{}}
			a.view.Store(&view{planned: planned})
			ctx, cancel := context.WithTimeout(t.Context(), 4*watchAgain)
			defer cancel()
			a.listenToGPUs(ctx)
			if got := bytes.Count(log.Bytes(), []byte("\n")); got != want {
				t.Errorf("planned %v: %d lines, want %d:\n%s", planned, got, want, &log)
			}
		})
	}
}
