package scenes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/site"
)

// Demo are the scenes of the demo, with so many jobs: the main job in a minute.
func Demo(jobs int) []Scene {
	says := fmt.Sprintf("%d jobs share the GPUs; no GPU has more jobs than shares, or more VRAM given away than its pool has", jobs)
	return []Scene{
		{"Share", site.Sim, says, func(ctx context.Context, st *Stage) error { return st.share(ctx, jobs, 1, false) }},
		{"OverBudgetAndFault", site.Sim, "a job on GPU 2 uses more than its budget, and a job on GPU 0 meets a fatal GPU error; " +
			"jobs on other GPUs run on", overBudgetAndFault},
	}
}

// overBudgetAndFault has a job over its budget and, during the time that it is allowed, a
// fault on another GPU.
func overBudgetAndFault(ctx context.Context, st *Stage) (err error) {
	faulty, full := st.Inventory.GPUs[0], st.Inventory.GPUs[2]
	elsewhere, err := st.neighbour(ctx, st.Inventory.GPUs[1].UUID, "fault")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, elsewhere.release()) }()
	beside, err := st.neighbour(ctx, full.UUID, "over")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	over, err := st.startTwins(ctx, full)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := st.contain(ctx, faulty); err != nil {
		return err
	}
	if err := elsewhere.leave(ctx, "a job on GPU 1 during that time"); err != nil {
		return err
	}
	if err := st.checkHeld(ctx, over, begin); err != nil {
		return err
	}
	return beside.leave(ctx, "its neighbour runs on")
}

// contain has a job that shares its GPU with another one and meets a fatal error there. The
// GPU opens when the last client that met the error has ended.
func (st *Stage) contain(ctx context.Context, g gpu.GPU) (err error) {
	hold, release, err := st.hold(ctx, "shared-fault")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	sharer, err := st.submit(ctx, client(g.UUID, hold, "go on alloc 1000 until eof"))
	if err != nil {
		return err
	}
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	culprit, err := st.complete(ctx, client(g.UUID, noHold, "alloc 500 load 20 3s fault illegal_address"))
	if err != nil {
		return err
	}
	reason, err := st.waitClosed(ctx, g.UUID)
	if err != nil {
		return err
	}
	st.Check(true, "GPU %d takes no jobs: %s", g.Index, reason)
	if err := st.waitTold(ctx, g.UUID, culprit); err != nil {
		return err
	}
	st.Check(true, "the agent names the jobs that were there, %d.0 of the fault among them", culprit)
	if err := errors.Join(release(), st.waitJobs(ctx, sharer, completed), st.WaitAccept(ctx, len(st.Inventory.GPUs))); err != nil {
		return err
	}
	st.Check(true, "it takes jobs again when the other job there, which met the error too, has ended")
	return st.checkServes(ctx, g.UUID, "the next job there")
}
