package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	// has not; wish is the key that wants it otherwise.
	with, without string
	wish          func(plan.GPU) string
}

func daemonFlags() []daemonFlag {
	return []daemonFlag{
		{multiUserFlag, plan.GPU.MultiUser, "its control daemon serves several accounts at once", "its control daemon serves one account at a time",
			func(g plan.GPU) string { return fmt.Sprintf("tenancy = %q", g.Tenancy.Policy) }},
		{mps.PartitionFlag, plan.GPU.Partitioned, "its control daemon serves clients in static SM partitions only", "its control daemon has no static SM partitions",
			func(g plan.GPU) string { return fmt.Sprintf("threads = %q", g.Threads.Policy) }},
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

// flagsDirectory holds a file for each control daemon with flags.
func flagsDirectory(p config.Paths) string { return filepath.Join(p.Run, "mps-flags") }

// DaemonFlags are the flags that a GPU's control daemon is to be started with.
func DaemonFlags(p config.Paths, u gpu.UUID) []string {
	b, err := os.ReadFile(filepath.Join(flagsDirectory(p), string(u)))
	if err != nil {
		return nil // none
	}
	_, flags, _ := strings.Cut(strings.TrimSpace(string(b)), flagsVariable+"=")
	return strings.Fields(flags)
}

// writeFlags makes the files of flags those of the plan.
func writeFlags(p config.Paths, pl plan.Plan) error {
	dir := flagsDirectory(p)
	var errs []error
	for _, g := range pl.GPUs {
		if flags := flagsOf(g); len(flags) > 0 {
			_, err := store.WriteIfChanged(filepath.Join(dir, string(g.UUID)), []byte(flagsVariable+"="+strings.Join(flags, " ")+"\n"))
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

// reflag starts those control daemons anew that run with other flags than the
// plan's, once nobody uses them; until then, and where that did not help, their
// GPUs are closed. What a daemon was started with stands in /proc.
func (a *Agent) reflag(ctx context.Context, p *plan.Plan, guards map[gpu.UUID]guard) {
	for i := range p.GPUs {
		g := &p.GPUs[i]
		now, ok := guards[g.UUID]
		if !g.Shared() || !ok || now.err != nil {
			continue
		}
		now.otherwise = ""
		if does, wish := a.flagsDiffer(g, now.proof.Process()); does != "" {
			now = a.reflagOne(ctx, g, now, does, wish)
		}
		guards[g.UUID] = now
	}
}

// flagsDiffer says what a daemon does for want of the plan's flags, and the key
// that wants it otherwise; empty if it has them.
func (a *Agent) flagsDiffer(g *plan.GPU, who process.ID) (does, wish string) {
	for _, f := range daemonFlags() {
		switch has, known := a.hasFlag(who, f.text); {
		case !known || has == f.wanted(*g):
		case has:
			return f.with, f.wish(*g)
		default:
			return f.without, f.wish(*g)
		}
	}
	return "", ""
}

func (a *Agent) reflagOne(ctx context.Context, g *plan.GPU, now guard, does, wish string) guard {
	if now.proof.Process() == a.reflagged[g.UUID] {
		now.otherwise = fmt.Sprintf("%s, although %s and it was started anew: see that gpuslot-mps@.service passes on $%s", does, wish, flagsVariable)
		return now
	}
	clients, err := a.allClients(ctx, g.UUID)
	if err != nil || len(clients) > 0 || a.jobs.Busy(g.UUID) || a.jobs.Unknown() != "" {
		now.otherwise = fmt.Sprintf("%s, but %s: it starts anew when the jobs there have ended", does, wish)
		return now
	}
	r := a.daemons.Restart(ctx, now.wanted)
	if r.Err == nil {
		a.log.Info("control daemon started anew with other flags", "gpu", g.UUID, "pid", r.Proof.PID, "flags", flagsOf(*g))
		a.reflagged[g.UUID] = r.Proof.Process()
	}
	return now.next(now.wanted, r.Proof, r.Err)
}

// hasFlag reads whether a process was started with a flag; false if that cannot
// be known.
func (a *Agent) hasFlag(who process.ID, flag string) (has, known bool) {
	if !a.proc.Runs(who) {
		return false, false
	}
	args, err := a.proc.Args(who.PID)
	if err != nil || len(args) == 0 {
		return false, false
	}
	return slices.Contains(args, flag), true
}
