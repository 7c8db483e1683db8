package scenes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// A plan that changes under jobs. Leg of all: real.

// reload gives the agent another configuration.
func (st *Stage) reload(ctx context.Context, text string) error {
	if err := st.WriteFile(ctx, site.ConfigFile, node.File{Data: text}); err != nil {
		return err
	}
	_, err := st.Run(ctx, "systemctl", "reload", "gpuslotd")
	return err
}

// waitShares waits until the startd offers a GPU in so many shares.
func (st *Stage) waitShares(ctx context.Context, u gpu.UUID, want int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, fmt.Sprintf("%d shares of %s that take jobs", want, u), func() bool {
		says, err := st.slotSays(ctx, u, "GPUAccept", "TotalSlotGPUs")
		return err == nil && says == fmt.Sprintf("true %d", want)
	})
}

// untouched checks that every job of a cluster ran once, to its end.
func (st *Stage) untouched(ctx context.Context, cluster int, what string) error {
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts")
	if err != nil {
		return err
	}
	for _, r := range rows {
		st.Check(r[0] == "0" && r[1] == "1", "%s: ExitCode %s, NumJobStarts %s", what, r[0], r[1])
	}
	return nil
}

// Fewer shares, and jobs on every slot: with changes = "drain" the startd takes
// no new jobs, waits for those that run, and comes back with the new layout.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{})
	must(t, st.WaitAccept(ctx, 2))
	hold, release := holdFor(t, st, "reload")
	shared, err := st.submit(ctx, job{Hold: hold, Lines: vram(4000), Queue: "queue 4"})
	must(t, err)
	cpu, err := st.submit(ctx, job{Hold: hold})
	must(t, err)
	_, err = st.waitLog(ctx, cpu, executing)
	must(t, err)
	_, err = st.waitLog(ctx, shared, executing)
	must(t, err)

	must(t, st.Wait(ctx, "the startd's word", func() bool {
		s, err := st.Status(ctx)
		return err == nil && len(s.Startds) == 1 && len(s.Startds[0].Jobs) == 5
	}))
	must(t, st.WriteFile(ctx, site.ConfigFile, node.File{Data: "[sharing]\nshares = 3\n"}))
	out, _ := st.Run(ctx, "gpuslot", "plan") // it exits with 2: the node differs
	st.Contains(out.Stdout, "STARTD runs an older layout: 5 jobs run on it", "gpuslot plan, before the reload")

	must(t, st.reload(ctx, "[sharing]\nshares = 3\n"))
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	must(t, st.Wait(wait, "the ad that says what is pending", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint", `GPUSlotPending isnt undefined && GPUSlotPending != ""`, "-af", "GPUSlotPending")
		return err == nil && strings.Contains(out.Stdout, `htcondor.changes = "never"`)
	}))
	st.Check(true, "by default it is told, and nothing is done")

	must(t, st.reload(ctx, "[sharing]\nshares = 3\n[htcondor]\nchanges = \"drain\"\n"))
	late, err := st.submit(ctx, job{Seconds: 1, Lines: vram(4000)})
	must(t, err)
	must(t, st.waitRetiring(ctx))
	release()
	for _, u := range []gpu.UUID{st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID} {
		must(t, st.waitShares(ctx, u, 3))
	}
	must(t, st.untouched(ctx, shared, "a job on a shared GPU"))
	must(t, st.untouched(ctx, cpu, "the job without a GPU"))
	must(t, st.untouched(ctx, late, "a job that came meanwhile"))
	s, err := st.Status(ctx)
	must(t, err)
	st.Check(len(s.Changes) == 0, "nothing is pending: %v", s.Changes)
	done(t, st)
}

// With a startd for each GPU, one GPU gets another layout while jobs run on on
// the others.
func TestStartdPerGPU(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const layout = "[htcondor]\nlayout = \"startd-per-gpu\"\nchanges = \"drain\"\n"
	st := newStage(t, 3, site.Options{Config: layout})
	must(t, st.WaitAccept(ctx, 3))
	changed, other := st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID
	holdThere, releaseThere := holdFor(t, st, "there")
	holdBeside, releaseBeside := holdFor(t, st, "beside")
	there, err := st.submit(ctx, job{Hold: holdThere, Lines: vram(4000, on(changed)), Queue: "queue 2"})
	must(t, err)
	beside, err := st.submit(ctx, job{Hold: holdBeside, Lines: vram(4000, on(other)), Queue: "queue 2"})
	must(t, err)
	cpu, err := st.submit(ctx, job{Hold: holdBeside})
	must(t, err)
	for _, cluster := range []int{there, beside, cpu} {
		_, err = st.waitLog(ctx, cluster, executing)
		must(t, err)
	}
	// Both startds have a slot1_1: the agent tells them apart.
	s, err := st.Status(ctx)
	must(t, err)
	slots := map[string]bool{}
	for _, g := range s.GPUs {
		for _, j := range g.Jobs {
			slots[j.Slot] = true
			st.Check(strings.HasSuffix(j.Slot, "@gpu"+g.UUID[4:12]), "GPU %d has %s", g.Index, j.Slot)
		}
	}
	st.Check(len(slots) == 4, "four jobs in four slots: %v", slots)

	must(t, st.reload(ctx, layout+fmt.Sprintf("[gpu.%q]\nshares = 3\n", changed)))
	releaseThere()
	must(t, st.waitShares(ctx, changed, 3))
	running, err := st.Run(ctx, "condor_q", "-all", "-run", "-af", "ClusterId")
	must(t, err)
	st.Check(strings.Count(running.Stdout, fmt.Sprint(beside)) == 2 && strings.Contains(running.Stdout, fmt.Sprint(cpu)),
		"GPU 0 has its new layout, and the jobs beside it run on: %s", oneLine(running.Stdout))
	releaseBeside()
	next, err := st.submit(ctx, job{Seconds: 1, Lines: vram(4000, on(changed))})
	must(t, err)
	must(t, st.untouched(ctx, there, "a job on the GPU that changed"))
	must(t, st.untouched(ctx, next, "the next job there"))
	o, err := st.output(ctx, next, 0)
	must(t, err)
	st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M", "it has its limit: %s", o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	must(t, st.untouched(ctx, beside, "a job beside it"))
	must(t, st.untouched(ctx, cpu, "the job without a GPU"))
	found, err := st.doctor(ctx)
	must(t, err)
	found = slices.DeleteFunc(found, func(d diagnosis) bool { return d.Level != "error" })
	st.Check(len(found) == 0, "gpuslot doctor finds no error: %v", found)
	done(t, st)
}

// Budgets, usage and the way out of MPS, where each GPU has its own startd. Leg: sim.
func TestStartdPerGPUJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	s := startSite(t, site.Options{Leg: site.Sim, Inventory: &inv, Config: "[htcondor]\nlayout = \"startd-per-gpu\"\n"})
	must(t, s.WaitAccept(ctx, len(inv.GPUs)))
	for _, scene := range All() {
		if scene.Name == "OverBudget" || scene.Name == "RemovedBusy" || scene.Name == "OwnUsage" {
			st := stageOn(t, s, inv)
			must(t, scene.Play(ctx, st))
			done(t, st)
		}
	}
}
