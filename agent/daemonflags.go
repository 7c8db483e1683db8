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
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// multiUserFlag starts a control daemon whose server, root's, serves all
// accounts at once (driver 555 on).
const multiUserFlag = "-multiuser-server"

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
		if g.MultiUser() {
			_, err := writeIfChanged(filepath.Join(dir, string(g.UUID)), []byte(flagsVariable+"="+multiUserFlag+"\n"))
			errs = append(errs, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if g, ok := pl.GPU(gpu.UUID(e.Name())); !ok || !g.MultiUser() {
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
		if has, known := a.hasFlag(now.proof.Process(), multiUserFlag); known && has != g.MultiUser() {
			now = a.reflagOne(ctx, g, now)
		}
		guards[g.UUID] = now
	}
}

func (a *Agent) reflagOne(ctx context.Context, g *plan.GPU, now guard) guard {
	serves := "its control daemon serves one account at a time"
	if !g.MultiUser() {
		serves = "its control daemon serves several accounts at once"
	}
	if now.proof.Process() == a.reflagged[g.UUID] {
		now.otherwise = fmt.Sprintf("%s, although tenancy = %q and it was started anew: see that gpuslot-mps@.service passes on $%s", serves, g.Tenancy.Policy, flagsVariable)
		return now
	}
	clients, err := a.allClients(ctx, g.UUID)
	if err != nil || len(clients) > 0 || a.books.busy(g.UUID) || a.books.unknown() != "" {
		now.otherwise = fmt.Sprintf("%s, but tenancy = %q: it starts anew when the jobs there have ended", serves, g.Tenancy.Policy)
		return now
	}
	r := a.daemons.Restart(ctx, now.wanted)
	if r.Err == nil {
		a.log.Info("control daemon started anew for another tenancy", "gpu", g.UUID, "pid", r.Proof.PID, "tenancy", g.Tenancy.Policy)
		a.reflagged[g.UUID] = r.Proof.Process()
	}
	return now.next(now.wanted, r.Proof, r.Err)
}

// hasFlag reads whether a process was started with a flag; false if that cannot
// be known.
func (a *Agent) hasFlag(who mps.Process, flag string) (has, known bool) {
	if !a.books.proc.alive(who.PID, who.Started) {
		return false, false
	}
	b, err := a.books.proc.read(who.PID, "cmdline")
	if err != nil || len(b) == 0 {
		return false, false
	}
	return slices.Contains(strings.Split(string(b), "\x00"), flag), true
}
