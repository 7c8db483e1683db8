// Package release undoes what gpuslot did to a node: for good with gpuslotd --release, and for as
// long as an operator takes the node out of service, for example for another driver. It also
// says whether a node that comes back into service is well.
//
// Start at Service, which is what closures.Quiescer asks for. Idle and RemoveGenerated are the
// steps that gpuslotd --release shares with it.
package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
	// Unknown says which job has a GPU that is not known; empty if there is none.
	Unknown() string
}

// Daemons are the node's control daemons; daemons.Keeper is the real one.
type Daemons interface {
	StopAll(ctx context.Context) error
}

// Limits are the driver's limits on jobs' cgroups; budget.Limits is the real one.
type Limits interface {
	Release(ctx context.Context) error
}

// Modes are the compute modes of the GPUs; modes.Modes is the real one.
type Modes interface {
	// Return restores those of GPUs that keep does not name: see modes.Modes.Return.
	Return(ctx context.Context, inv gpu.Inventory, keep func(gpu.UUID) bool) error
}

// Hardware is what the node has; hardware.Reader is the real one.
type Hardware interface {
	Inventory(ctx context.Context) (inv gpu.Inventory, unreadable []error, err error)
}

// Verifier verifies GPUs; verify.Verifier is the real one.
type Verifier interface {
	// Able says whether there is a CUDA client to start.
	Able() bool
	GPU(ctx context.Context, u gpu.UUID) api.Verification
}

// Options are what a Service works with.
type Options struct {
	Jobs      Jobs
	Daemons   Daemons
	Limits    Limits
	Modes     Modes
	Hardware  Hardware
	Verifier  Verifier
	Processes process.FS
	Log       *slog.Logger
	// Sweep drops the jobs that have ended.
	Sweep func()
	// Node is what the last round found.
	Node func() Node
	// Unwell is why jobs could not run on a shared GPU, regardless of who closed it and of its
	// verification; empty if they could.
	Unwell func(g *plan.GPU, now time.Time) string
}

// Node is what the last round of the agent's loop found.
type Node struct {
	Config config.Config
	Plan   *plan.Plan
	// Ready: a plan was made since this agent started. Closed closes every GPU, with the
	// reason; empty if nothing does.
	Ready  bool
	Closed string
}

// Service takes a node out of service and back. It keeps no state.
type Service struct{ Options }

// Inventory is the file with what the node had when it was quiesced: the plan rests on it until
// the node resumes.
func Inventory(p config.Paths) string { return filepath.Join(p.State, "quiesced.json") }

// Holding returns the slots whose jobs hold a GPU. It reads nothing but /proc and the job
// table: jobs on whole GPUs pass the hook, too, so that all are there.
func (s Service) Holding() (slots []string, unknown string) {
	s.Sweep()
	running := slices.DeleteFunc(s.Jobs.Running(), func(j jobs.Job) bool { return j.Starter.Slot == admission.VerifySlot })
	return slotsOf(running), s.Jobs.Unknown()
}

// slotsOf names the slots that jobs hold, in order.
func slotsOf(running []jobs.Job) []string {
	var out []string
	for _, r := range running {
		out = append(out, fmt.Sprintf("%s (%s on %s)", r.Starter.Slot, r.AccountName(), r.GPU))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// LetGo stops what keeps the driver in use. NVML stays open until this process ends. With revert
// it removes HTCondor's generated files, too.
func (s Service) LetGo(ctx context.Context, revert bool) error {
	cfg := s.Node().Config
	if err := s.Daemons.StopAll(ctx); err != nil {
		return err
	}
	if err := s.Limits.Release(ctx); err != nil {
		s.Log.Warn("limits of cgroups are left behind; they end with the driver", "err", err)
	}
	if err := s.keepInventory(ctx, cfg.Paths); err != nil {
		// A driver that does not answer is why a node is quiesced, at times. Compute
		// modes end with it.
		s.Log.Warn("compute modes are not restored; they end with the driver", "err", err)
	}
	if revert {
		return RemoveGenerated(cfg)
	}
	return nil
}

// keepInventory restores compute modes and writes down what the node then has.
func (s Service) keepInventory(ctx context.Context, p config.Paths) error {
	inv, _, err := s.Hardware.Inventory(ctx)
	if err == nil {
		err = s.Modes.Return(ctx, inv, nil)
	}
	if err == nil {
		inv, _, err = s.Hardware.Inventory(ctx)
	}
	if err != nil {
		return err
	}
	return store.WriteJSON(Inventory(p), inv)
}

// Holders returns the processes that have the driver's devices open, without the agent. With an error
// there may be more.
func (s Service) Holders() ([]api.NodeHolder, error) { return closures.Holders(s.Processes) }

// Version is that of NVIDIA's driver.
func (s Service) Version() string { return s.Node().Plan.Driver }

// Idle fails while jobs run that gpuslot admitted, or may have. Ask asks the startds, and says
// whether nothing is left to be asked.
func Idle(ctx context.Context, j Jobs, ask func(context.Context) bool) error {
	for range jobs.MostAsked {
		if j.Unknown() == "" || ask(ctx) {
			break
		}
	}
	if why := j.Unknown(); why != "" {
		return fmt.Errorf("jobs may be running: %s; or use --force, which ends the MPS servers of running jobs", why)
	}
	if slots := slotsOf(j.Running()); len(slots) > 0 {
		return fmt.Errorf("jobs run in %s: drain the node first (condor_drain), or use --force, which ends their MPS "+
			"servers", strings.Join(slots, ", "))
	}
	return nil
}

// RemoveGenerated removes what the agent wrote for HTCondor and for its own tools.
func RemoveGenerated(cfg config.Config) error {
	files := []string{
		cfg.Paths.InventoryAds(), cfg.Paths.PlanFile(), cfg.Paths.JobWrapper(), partitions.File(cfg.Paths),
		layouts.File(cfg.Paths),
	}
	if cfg.HTCondor.Manage {
		files = append(files, cfg.Paths.CondorConfig(), startd.ClosedFile(cfg.Paths))
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, store.Remove(f))
	}
	return errors.Join(append(errs, os.RemoveAll(daemons.FlagsDirectory(cfg.Paths)))...)
}

// SetUp says that an agent has changed this node since the last gpuslotd --release.
func SetUp(p config.Paths) bool {
	for _, file := range []string{modes.File(p), startd.ClosedFile(p), p.PlanFile()} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
