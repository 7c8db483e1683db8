package scenes

import (
	"context"
	"errors"
	"strings"
	"time"
)

// suspends stops the MPS servers of its account by a signal, which the kernel lets it do.
var suspends = program{"suspends.sh", `#!/bin/sh
pkill -STOP -u "$(id -u)" -x nvidia-cuda-mps && exec sleep 600
`}

// serverSuspended: no client of a suspended MPS server gets on, and its control daemon hangs when
// it asks the server.
func serverSuspended(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[1]
	beside, err := st.neighbour(ctx, g.UUID, "suspended")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	hostile, err := st.submit(ctx, job{Program: suspends, Lines: vram(4000, on(g.UUID))})
	if err != nil {
		return err
	}
	if err := st.waitSlot(ctx, g.UUID, false); err != nil {
		return err
	}
	_, reason := st.slotAccepts(ctx, g.UUID)
	says := strings.Contains(reason, "is suspended and every client waits for it") || // or its daemon was asked first
		strings.Contains(reason, "lives but did not answer")
	st.Check(says, "the slot's reason: %s", reason)
	late, err := st.submit(ctx, pinned(g.UUID, 1))
	if err != nil {
		return err
	}
	if _, err := st.complete(ctx, pinned(st.Inventory.GPUs[0].UUID, 1)); err != nil {
		return err
	}
	st.Check(true, "a job on another GPU runs")
	stays, err := st.staysIdle(ctx, late, 5*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "a later job is not matched there")
	out, err := st.RunAs(ctx, user, "gpuslot", "status")
	if err != nil {
		return err
	}
	st.Contains(out.Stdout, "Its control daemon is not proven healthy", "gpuslot status, as the job's user")
	for _, cluster := range []int{hostile, beside.cluster} {
		if err := st.remove(ctx, cluster); err != nil {
			return err
		}
	}
	err = st.waitJobs(ctx, late, completed)
	st.Check(err == nil, "when the jobs there have ended, the GPU opens, and the later job runs")
	return err
}
