package scenes

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// accounts: MPS serves one account at a time, and a client of another one hangs
// in cuInit. START keeps it from there.
func accounts(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[0]
	first, err := st.neighbour(ctx, g.UUID, "alice")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.release()) }()
	n, err := st.waitClients(ctx, g.Index, 1, 1000)
	if err != nil {
		return err
	}
	alices, _ := n.server(g.Index)
	if err := st.waitTenant(ctx, g.UUID, user); err != nil {
		return err
	}
	second, err := st.submitAs(ctx, "bob", client(g.UUID, noHold, "alloc 1000"))
	if err != nil {
		return err
	}
	if err := st.checkServes(ctx, g.UUID, "alice's second job, beside her first"); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, second, "JobStatus", "NumShadowStarts")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == strconv.Itoa(idle) && rows[0][1] == "undefined",
		"bob's job, submitted before it, is not matched while alice's server %d (uid %d) has the GPU", alices.PID, alices.UID)
	if err := first.leave(ctx, "alice's first job"); err != nil {
		return err
	}
	if err := st.checkEnd(ctx, "bob", second, "0", "alloc 1000 MiB: ok", "then bob's job"); err != nil {
		return err
	}
	return st.checkServerOf(ctx, "bob", g.Index, alices.PID)
}

// checkServerOf checks whose server a GPU has; a server outlives its clients.
func (st *Stage) checkServerOf(ctx context.Context, who string, index, former int) error {
	id, err := st.Run(ctx, "id", "-u", who)
	if err != nil {
		return err
	}
	n, err := st.simNode(ctx)
	if err != nil {
		return err
	}
	s, one := n.server(index)
	st.Check(one && strconv.Itoa(s.UID) == strings.TrimSpace(id.Stdout) && s.PID != former,
		"its server %d (uid %d) took the place of server %d", s.PID, s.UID, former)
	return nil
}

// freeGPU is a job that drops what the hook gave it: without the pipe directory
// CUDA runs without MPS and without limits.
var freeGPU = program{"free.sh", `#!/bin/sh
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_PINNED_DEVICE_MEM_LIMIT
exec simjob alloc 30000
`}

func droppedPipe(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[0]
	beside, err := st.neighbour(ctx, g.UUID, "neighbour")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	rogue := client(g.UUID, noHold, "")
	rogue.Program = freeGPU
	cluster, err := st.submit(ctx, rogue)
	if err != nil {
		return err
	}
	if err := st.checkEnd(ctx, user, cluster, "1", "error 46 CUDA_ERROR_DEVICE_UNAVAILABLE", "without its pipe directory"); err != nil {
		return err
	}
	return beside.leave(ctx, "its neighbour")
}

// killedBusy: NVIDIA calls it undefined what the other clients meet; the
// simulator takes the bad case.
func killedBusy(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[1]
	beside, err := st.neighbour(ctx, g.UUID, "beside")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	busy, err := st.submit(ctx, client(g.UUID, beside.hold, "alloc 1000 load 50 600s"))
	if err != nil {
		return err
	}
	n, err := st.waitClients(ctx, g.Index, 2, 1000)
	if err != nil {
		return err
	}
	server, _ := n.server(g.Index)
	pid, err := st.waitBusy(ctx, g.Index)
	if err != nil {
		return err
	}
	st.Say("  kill -9 %d, an MPS client at work on GPU %d", pid, g.Index)
	if _, err := st.Run(ctx, "kill", "-KILL", strconv.Itoa(pid)); err != nil {
		return err
	}
	if err := st.checkKilled(ctx, busy, "its job"); err != nil {
		return err
	}
	if err := st.checkEnd(ctx, user, beside.cluster, "1", "error 719", "its neighbour"); err != nil {
		return err
	}
	if err := st.checkServes(ctx, g.UUID, "the next job there"); err != nil {
		return err
	}
	after, err := st.simNode(ctx)
	if err != nil {
		return err
	}
	same, _ := after.server(g.Index)
	st.Check(same == server, "MPS server %d of GPU %d is %s again", server.PID, g.Index, same.State)
	return nil
}
