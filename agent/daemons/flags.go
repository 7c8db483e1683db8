package daemons

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// multiUserFlag starts a control daemon whose server, root's, serves all
// accounts at once (driver 555 on).
const multiUserFlag = "-multiuser-server"

// daemonFlag is a flag that a control daemon has if the plan wants it.
type daemonFlag struct {
	text   string
	wanted func(plan.GPU) bool
	// with and without say what a daemon does that has the flag, and one that
	// has not; wants is the key that wants it otherwise.
	with, without string
	wants         func(plan.GPU) string
}

func daemonFlags() []daemonFlag {
	return []daemonFlag{
		{
			multiUserFlag, plan.GPU.MultiUser,
			"its control daemon serves several accounts at once", "its control daemon serves one account at a time",
			func(g plan.GPU) string { return fmt.Sprintf("tenancy = %q", g.Tenancy.Policy) },
		},
		{
			mps.PartitionFlag, plan.GPU.Partitioned,
			"its control daemon serves clients in static SM partitions only",
			"its control daemon has no static SM partitions",
			func(g plan.GPU) string { return fmt.Sprintf("threads = %q", g.Threads.Policy) },
		},
	}
}

// flagsOf are the flags that the plan wants.
func flagsOf(g plan.GPU) []string {
	var flags []string
	for _, f := range daemonFlags() {
		if f.wanted(g) {
			flags = append(flags, f.text)
		}
	}
	return flags
}

// flagsVariable holds a control daemon's flags; gpuslot-mps@.service passes it on.
const flagsVariable = "GPUSLOT_MPS_FLAGS"

// FlagsDirectory holds a file for each control daemon with flags.
func FlagsDirectory(p config.Paths) string { return filepath.Join(p.Run, "mps-flags") }

// Flags are the flags that a GPU's control daemon is to be started with.
func Flags(p config.Paths, u gpu.UUID) []string {
	b, err := os.ReadFile(filepath.Join(FlagsDirectory(p), string(u)))
	if err != nil {
		return nil // none
	}
	_, flags, _ := strings.Cut(strings.TrimSpace(string(b)), flagsVariable+"=")
	return strings.Fields(flags)
}

// writeFlags makes the files of flags those of the plan.
func writeFlags(p config.Paths, pl plan.Plan) error {
	dir := FlagsDirectory(p)
	var errs []error
	for _, g := range pl.GPUs {
		if flags := flagsOf(g); len(flags) > 0 {
			line := flagsVariable + "=" + strings.Join(flags, " ") + "\n"
			_, err := store.WriteIfChanged(filepath.Join(dir, string(g.UUID)), []byte(line))
			errs = append(errs, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if g, ok := pl.GPU(gpu.UUID(e.Name())); !ok || len(flagsOf(g)) == 0 {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// correctFlags restarts those control daemons that run with other flags than the plan's, once
// nobody uses them; until then, and where that did not help, their GPUs are closed. What a
// daemon was started with stands in /proc.
func (k *Keeper) correctFlags(ctx context.Context, p *plan.Plan, now map[gpu.UUID]State) {
	for i := range p.GPUs {
		g := &p.GPUs[i]
		s, ok := now[g.UUID]
		if !g.MPS() || !ok || s.Err != nil {
			continue
		}
		s.Otherwise = ""
		if has, wants := k.flagsDiffer(g, s.Checked.Process()); has != "" {
			s = k.restartForFlags(ctx, g, s, has, wants)
		}
		now[g.UUID] = s
	}
}

// flagsDiffer says what a daemon does for want of the plan's flags, and the key that wants it
// otherwise; empty if it has them, or if that cannot be known.
func (k *Keeper) flagsDiffer(g *plan.GPU, who process.ID) (has, wants string) {
	if !k.Processes.Runs(who) {
		return "", ""
	}
	args, err := k.Processes.Args(who.PID)
	if err != nil || len(args) == 0 {
		return "", ""
	}
	for _, f := range daemonFlags() {
		switch set := slices.Contains(args, f.text); {
		case set == f.wanted(*g):
		case set:
			return f.with, f.wants(*g)
		default:
			return f.without, f.wants(*g)
		}
	}
	return "", ""
}

func (k *Keeper) restartForFlags(ctx context.Context, g *plan.GPU, s State, has, wants string) State {
	switch {
	case s.Checked.Process() == k.flagged[g.UUID]:
		s.Otherwise = fmt.Sprintf("%s, although %s and it was restarted: "+
			"see that gpuslot-mps@.service passes on $%s", has, wants, flagsVariable)
		return s
	case !k.idle(ctx, g.UUID):
		s.Otherwise = fmt.Sprintf("%s, but %s: it restarts when the jobs there have ended", has, wants)
		return s
	}
	r := k.Daemons.Restart(ctx, s.Wanted)
	if r.Err == nil {
		k.Log.Info("control daemon restarted with other flags", "gpu", g.UUID, "pid", r.Checked.PID, "flags", flagsOf(*g))
		k.flagged[g.UUID] = r.Checked.Process()
	}
	return s.next(s.Wanted, r.Checked, r.Err)
}

// partition gives the GPUs of threads = "partitioned" their static SM partitions, round by
// round. They end with their control daemon, and are made again before the GPU opens. Where
// they cannot be had, the GPU is closed. A job can make others by its control daemon's socket, so the
// GPU stays closed only if a daemon has others that no account could reach.
func (k *Keeper) partition(
	ctx context.Context, p *plan.Plan, now map[gpu.UUID]State, deadline time.Duration,
) error {
	err := k.Partitions.Drop()
	for i := range p.GPUs {
		g := &p.GPUs[i]
		s, ok := now[g.UUID]
		if !g.Partitioned() || !ok || s.Err != nil || s.Otherwise != "" {
			continue
		}
		k.Beat()
		now[g.UUID] = k.partitionOne(ctx, g, s, deadline)
	}
	return err
}

func (k *Keeper) partitionOne(ctx context.Context, g *plan.GPU, s State, deadline time.Duration) State {
	daemon := s.Checked.Process()
	why, other := k.Partitions.Have(ctx, g, daemon, deadline)
	if s.Otherwise = why; !other {
		return s
	}
	given, before := k.Access.Given(g.UUID), k.partitioned[g.UUID]
	switch {
	case daemon == before.daemon && given >= 0 && given == before.given:
		s.Otherwise = why + ", although its control daemon was restarted: see its log"
		return s
	case !k.idle(ctx, g.UUID):
		s.Otherwise = why + ": its control daemon restarts when the jobs there have ended"
		return s
	}
	r := k.Daemons.Restart(ctx, s.Wanted)
	if s = s.next(s.Wanted, r.Checked, r.Err); r.Err != nil {
		return s
	}
	k.Log.Info("control daemon restarted for other partitions", "gpu", g.UUID, "pid", r.Checked.PID)
	k.partitioned[g.UUID] = repeated{r.Checked.Process(), given}
	s.Otherwise, _ = k.Partitions.Have(ctx, g, r.Checked.Process(), deadline)
	return s
}
