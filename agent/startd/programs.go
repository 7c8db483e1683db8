package startd

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/condor"
)

// Programs are the command-line programs of the installed HTCondor.
type Programs struct{}

// Version asks condor_version.
func (Programs) Version(ctx context.Context) (condor.Version, error) {
	return condor.InstalledVersion(ctx)
}

// Slots asks the startd with condor_status -direct.
func (Programs) Slots(ctx context.Context, startd string) ([]condor.Slot, error) {
	return condor.Slots(ctx, startd)
}

// Restart asks the condor_master with condor_restart -peaceful.
func (Programs) Restart(ctx context.Context, startd string) error { return condor.Restart(ctx, startd) }

// Reconfigure asks the condor_master with condor_reconfig.
func (Programs) Reconfigure(ctx context.Context) error { return condor.Reconfigure(ctx) }

// Demand asks the collector with condor_status -schedd.
func (Programs) Demand(ctx context.Context, now time.Time) (condor.Demand, error) {
	return condor.PoolDemand(ctx, now)
}
