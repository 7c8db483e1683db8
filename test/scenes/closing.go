package scenes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// closing is an operator and a site's script who close a GPU under load.
func closing(ctx context.Context, st *Stage) (err error) {
	u, other := st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID
	hold, release, err := st.hold(ctx, "closing")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	load, err := st.submit(ctx, job{Hold: hold, Lines: vram(4000, on(u)), Queue: "queue 3"})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, load, running); err != nil {
		return err
	}
	took, err := st.heard(ctx, u, false, "gpuslot", "gpu", "close", "0", "--reason", "riser to be replaced")
	if err != nil {
		return err
	}
	st.Say("  closed: the startd heard of it after %s", took.Round(10*time.Millisecond))
	if _, err := st.Run(ctx, "gpuslot", "gpu", "close", string(u), "--owner", "node-health", "--reason", "93 C"); err != nil {
		return err
	}
	waiting, err := st.submit(ctx, pinned(u, 1))
	if err != nil {
		return err
	}
	if _, err := st.complete(ctx, pinned(other, 1)); err != nil {
		return err
	}
	st.Check(true, "a job on another GPU runs")
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, waiting, 4*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "job %d waits, also after a restart of gpuslotd", waiting)
	out, _ := st.Run(ctx, "gpuslot", "gpu", "drain", "0", "--reason", "riser to be replaced", "--deadline", "1s")
	st.Check(out.Code == 5 && strings.Contains(out.Stdout, "waiting for 3 jobs"), "gpuslot gpu drain --deadline 1s tells who is left, exit code %d: %s", out.Code, oneLine(out.Stdout))
	if err := st.checkHeldShown(ctx, u); err != nil {
		return err
	}
	if out, err = st.Run(ctx, "gpuslot", "gpu", "open", "0", "--owner", "burn-in"); err == nil {
		return fmt.Errorf("a stranger opened the GPU: %s", out.Stdout)
	}
	if out, err = st.Run(ctx, "gpuslot", "gpu", "open", "0"); err != nil {
		return err
	}
	st.Contains(out.Stdout, "stays closed by node-health", "the operator opens it, the script holds it")
	if took, err = st.heard(ctx, u, true, "gpuslot", "gpu", "open", "0", "--owner", "node-health"); err != nil {
		return err
	}
	st.Say("  opened: the startd heard of it after %s", took.Round(10*time.Millisecond))
	if err := st.waitJobs(ctx, waiting, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, waiting, "NumShadowStarts")
	if err != nil {
		return err
	}
	st.Check(len(rows) == 1 && rows[0][0] == "1", "opened, the waiting job started, at its first match: %v", rows)
	if err := errors.Join(release(), st.waitJobs(ctx, load, completed)); err != nil {
		return err
	}
	rows, err = st.JobAttrs(ctx, load, "NumShadowStarts", "ExitCode")
	if err != nil {
		return err
	}
	once := len(rows) == 3
	for _, row := range rows {
		once = once && row[0] == "1" && row[1] == "0"
	}
	st.Check(once, "the jobs that ran went on to their end, each started once")
	return nil
}

// heard runs a command and tells how long the startd takes to say the GPU's new state.
func (st *Stage) heard(ctx context.Context, u gpu.UUID, accept bool, command ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	begin := time.Now()
	if out, err := st.Run(ctx, command...); err != nil {
		return 0, fmt.Errorf("%v: %w: %s", command, err, out.Stderr)
	}
	for ctx.Err() == nil {
		out, err := st.Run(ctx, "condor_status", "-direct", "", "-constraint", slotOf(u), "-af", "GPUAccept")
		if err == nil && strings.TrimSpace(out.Stdout) == fmt.Sprint(accept) {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("after %v the startd does not say GPUAccept = %v of %s", command, accept, u)
}

// checkHeldShown looks where a site would.
func (st *Stage) checkHeldShown(ctx context.Context, u gpu.UUID) error {
	g, err := st.statusOf(ctx, u)
	if err != nil {
		return err
	}
	var owners []string
	for _, h := range g.Holds {
		owners = append(owners, h.Owner)
	}
	st.Check(strings.Join(owners, " ") == "node-health operator", "gpuslot status: held by %v", owners)
	says, err := st.slotSays(ctx, u, "GPUClosedBy", "GPUAcceptReason")
	if err != nil {
		return err
	}
	st.Contains(says, "node-health, operator closed by node-health since", "the slot's ad")
	why, err := st.Run(ctx, "gpuslot", "why", "0")
	st.Contains(why.Stdout, "riser to be replaced", "gpuslot why 0")
	return err
}
