package scenes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// quiesce is a driver upgrade: one that came unasked and is taken back, then one
// that an operator makes.
func quiesce(ctx context.Context, st *Stage) error {
	if err := st.waitNoJobs(ctx); err != nil {
		return err
	}
	u := st.Inventory.GPUs[0].UUID
	load, err := st.neighbour(ctx, u, "quiesce")
	if err != nil {
		return err
	}
	defer load.release() //nolint:errcheck // also done below, where it counts
	if _, err := st.waitClients(ctx, 0, 1, 1000); err != nil {
		return err
	}
	if err := st.mismatched(ctx, u); err != nil {
		return err
	}
	out, _ := st.Run(ctx, "gpuslot", "node", "quiesce", "--reason", "driver 580", "--deadline", "4s")
	st.Check(out.Code == 5 && strings.Contains(out.Stdout+out.Stderr, "1 jobs remain"), "gpuslot node quiesce waits for the job, exit code %d: %s", out.Code, oneLine(out.Stdout+out.Stderr))
	waiting, err := st.submit(ctx, client(u, noHold, "alloc 1000"))
	if err != nil {
		return err
	}
	if err := load.leave(ctx, "the job went on to its end, through mismatch, restart of gpuslotd and deadline"); err != nil {
		return err
	}
	begin := time.Now()
	out, err = st.Run(ctx, "gpuslot", "node", "quiesce", "--reason", "driver 580", "--deadline", "1m")
	st.Check(err == nil && strings.Contains(out.Stdout, "the node is quiesced"), "after its end the node is quiesced, %s later: %s", time.Since(begin).Round(100*time.Millisecond), oneLine(out.Stdout+out.Stderr))
	if err := st.checkLetGo(ctx); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, waiting, 4*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "job %d waits, and a restarted gpuslotd stays away from the driver", waiting)
	if err := st.checkLetGo(ctx); err != nil {
		return err
	}
	begin = time.Now()
	out, err = st.Run(ctx, "gpuslot", "node", "resume")
	st.Check(err == nil && strings.Contains(out.Stdout, "the node serves"), "gpuslot node resume verifies and opens, %s later: %s", time.Since(begin).Round(100*time.Millisecond), oneLine(out.Stdout+out.Stderr))
	if err != nil {
		return err
	}
	if err := st.checkVerifiedShown(ctx); err != nil {
		return err
	}
	return st.checkEnd(ctx, user, waiting, "0", "alloc 1000 MiB: ok", "the waiting job ran")
}

// mismatched replaces the library under the loaded module: NVML_ERROR_LIB_RM_VERSION_MISMATCH
// for every new process.
func (st *Stage) mismatched(ctx context.Context, u gpu.UUID) error {
	if _, err := st.Run(ctx, "simgpu", "fail", "any", "nvmlInit_v2", "18"); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "reload", "gpuslotd.service"); err != nil {
		return err
	}
	reason, err := st.waitClosed(ctx, u)
	st.Check(err == nil && strings.Contains(reason, "driver/library version mismatch"), "a driver upgraded under the loaded module closes the GPUs: %s", oneLine(reason))
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	daemons, err := st.Run(ctx, "systemctl", "list-units", "--plain", "--no-legend", "--state=active", "gpuslot-mps@*")
	if err != nil {
		return err
	}
	running := len(strings.Split(strings.TrimSpace(daemons.Stdout), "\n"))
	st.Check(running == len(st.Inventory.GPUs), "no control daemon was stopped by a gpuslotd that started meanwhile: %d run", running)
	if _, err := st.Run(ctx, "simgpu", "release", "any"); err != nil {
		return err
	}
	err = st.WaitAccept(ctx, len(st.Inventory.GPUs))
	st.Check(err == nil, "when library and module match again, the GPUs open")
	return err
}

// checkLetGo looks at what a driver's package would meet.
func (st *Stage) checkLetGo(ctx context.Context) error {
	out, err := st.Run(ctx, "sh", "-c", `systemctl list-units --plain --no-legend --state=active 'gpuslot-mps@*' | wc -l
grep -c libnvidia-ml "/proc/$(systemctl show -P MainPID gpuslotd.service)/maps"
gpuslot inventory --json | grep -c '"compute_mode": "default"'; true`)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("0\n0\n%d\n", len(st.Inventory.GPUs))
	st.Check(out.Stdout == want, "no control daemon runs, gpuslotd has no NVML loaded, compute modes are as they were (%s)", oneLine(out.Stdout))
	return nil
}
