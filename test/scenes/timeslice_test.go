package scenes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// controllers makes the kernel look as if cgroup v2 had a controller for the driver's limits.
const controllers = `simgpu cgroups dmem /sys/fs/cgroup
echo cpu memory pids dmem >/run/gpuslot-sim/controllers
mount --bind /run/gpuslot-sim/controllers /sys/fs/cgroup/cgroup.controllers`

// TestTimeSlices: without MPS two accounts share a GPU of driver 615. Each job has the driver's limit
// before its program runs, and the fault of one ends no other. Without the controller the plan is refused.
func TestTimeSlices(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	inv.GPUs, inv.Driver, inv.CUDA = inv.GPUs[2:], "615.71.09", "13.4"
	inv.GPUs[0].Index = 0
	st := newStage(t, 0, site.Options{Leg: site.Sim, Inventory: &inv, Config: "[sharing]\nmode = \"time-slice\"\n"})
	st.Inventory = inv
	for _, verb := range []string{"status", "plan"} {
		out, err := st.Run(ctx, "gpuslot", verb)
		st.Check(err != nil && strings.Contains(out.Stderr, "cgroup v2 has neither the controller dmem nor misc"),
			"gpuslot %s: %s", verb, oneLine(out.Stderr))
	}

	_, err := st.Run(ctx, "sh", "-ec", controllers)
	must(t, err)
	_, err = st.Run(ctx, "systemctl", "restart", "gpuslotd", "condor")
	must(t, err)
	must(t, st.WaitAccept(ctx, 1))
	u := inv.GPUs[0].UUID
	units, err := st.Run(ctx, "systemctl", "list-units", "--no-legend", "gpuslot-mps@*")
	must(t, err)
	st.Check(strings.TrimSpace(units.Stdout) == "", "no control daemon runs: %q", units.Stdout)

	out, err := st.told(ctx, job{Lines: vram(4000)})
	must(t, err)
	ofMPS := slices.ContainsFunc(slices.Collect(maps.Keys(out.Env)), func(name string) bool {
		return strings.HasPrefix(name, "CUDA_MPS_")
	})
	st.Check(!ofMPS && out.Env["CUDA_VISIBLE_DEVICES"] == string(u) && out.Env["GPUSLOT_VRAM_MIB"] == "4096" &&
		out.Env["GPUSLOT_ENFORCED_BY"] == jobs.EnforcedByCgroup, "the environment of a job: %v", out.Env)

	other, err := st.neighbour(ctx, u, "slices")
	must(t, err)
	t.Cleanup(func() { must(t, other.release()) })
	must(t, st.waitJobs(ctx, other.cluster, running))
	greedy, err := st.submit(ctx, client(u, noHold, "info alloc 5000"))
	must(t, err)
	must(t, st.checkEnd(ctx, user, greedy, "1", "alloc 5000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY", "a job beyond its budget"))
	text, err := st.printed(ctx, user, greedy, 0)
	must(t, err)
	st.Contains(text, " of 4096 MiB", "CUDA shows it the budget")

	remade, err := st.submit(ctx, job{Program: remaker, Lines: vram(4000, on(u))})
	must(t, err)
	must(t, st.waitJobs(ctx, remade, held, completed))
	rows, err := st.JobAttrs(ctx, remade, "HoldReasonSubCode", "HoldReason")
	must(t, err)
	st.Check(rows[0][0] == "84" && strings.Contains(rows[0][1], "outside the job's cgroup"),
		"a job that made a cgroup in the place of its own is held: %v", rows[0])
	must(t, st.WaitAccept(ctx, 1))

	culprit, err := st.submitAs(ctx, "bob", client(u, noHold, "alloc 500 load 20 2s fault illegal_address"))
	must(t, err)
	must(t, st.checkEnd(ctx, "bob", culprit, "1", "CUDA_ERROR_ILLEGAL_ADDRESS", "a job with a fatal GPU error"))
	var now api.StatusGPU
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	must(t, st.Wait(wait, "that job to leave", func() bool {
		now, err = st.statusOf(ctx, u)
		return err == nil && len(now.Jobs) == 1
	}))
	st.Check(now.Accept && now.Jobs[0].EnforcedBy == jobs.EnforcedByCgroup && now.EnforcedBy == jobs.EnforcedByCgroup,
		"after it the GPU takes jobs: %t (%s), enforced by %s", now.Accept, now.Reason, now.EnforcedBy)

	// A program that a job left to the service manager of its account.
	own, err := st.Run(ctx, "systemd-run", "--wait", "--slice=user-1002.slice", "--uid=bob", "simjob", "alloc", "500", "sleep", "900s")
	st.Check(err != nil && strings.Contains(own.Stderr, "9/KILL"), "a user's program outside of jobs is killed: %s", oneLine(own.Stderr))
	must(t, st.WaitAccept(ctx, 1))
	must(t, other.leave(ctx, "the job of another account beside it"))
	done(t, st)
}

// remaker puts all processes of its cgroup into one of its own that has the same name, and computes there.
var remaker = program{"remaker.py", `#!/usr/bin/env python3
import os
os.dup2(1, 2)
own = [l for l in open("/proc/self/cgroup") if l.startswith("0::")][0][3:].strip()
scope = "/sys/fs/cgroup" + own
mine = os.path.dirname(scope) + "/mine"
def move(at, to):
    for pid in open(at + "/cgroup.procs").read().split():
        with open(to + "/cgroup.procs", "w") as f:
            f.write(pid)
os.mkdir(mine)
move(scope, mine)
os.rmdir(scope)
os.mkdir(scope)
move(mine, scope)
os.rmdir(mine)
os.execvp("bash", ["bash", "-c", "exec simjob alloc 1000 sleep 900s"])
`}
