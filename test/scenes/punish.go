package scenes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// accounts: MPS serves one account at a time, and a client of another one hangs
// in cuInit. START keeps it from there.
func accounts(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[0]
	hold, release, err := st.hold(ctx, "alice")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	first, err := st.submit(ctx, client(g.UUID, hold, "alloc 1000 until eof"))
	if err != nil {
		return err
	}
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
	beside, err := st.submit(ctx, client(g.UUID, noHold, "alloc 1000"))
	if err != nil {
		return err
	}
	if err := st.checkEnd(ctx, user, beside, "0", "alloc 1000 MiB: ok", "alice's second job, beside her first"); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, second, "JobStatus", "NumShadowStarts")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == strconv.Itoa(idle) && rows[0][1] == "undefined",
		"bob's job, submitted before it, is not matched while alice's server %d (uid %d) has the GPU", alices.PID, alices.UID)
	if err := release(); err != nil {
		return err
	}
	if err := st.checkEnd(ctx, user, first, "0", "until eof: ok", "alice's first job"); err != nil {
		return err
	}
	if err := st.checkEnd(ctx, "bob", second, "0", "alloc 1000 MiB: ok", "then bob's job"); err != nil {
		return err
	}
	return st.checkServerOf(ctx, "bob", g.Index, alices.PID)
}

// waitTenant waits until a GPU's slot says that it is an account's.
func (st *Stage) waitTenant(ctx context.Context, u gpu.UUID, who string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return st.Wait(ctx, "the slot to name its tenant", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint",
			fmt.Sprintf(`SlotType == "Partitionable" && GPUSlotUUID == "%s"`, u), "-af", "GPUTenant")
		return err == nil && strings.TrimSpace(out.Stdout) == who
	})
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
	hold, release, err := st.hold(ctx, "neighbour")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	neighbour, err := st.submit(ctx, client(g.UUID, hold, "alloc 1000 until eof"))
	if err != nil {
		return err
	}
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
	if err := release(); err != nil {
		return err
	}
	return st.checkEnd(ctx, user, neighbour, "0", "until eof: ok", "its neighbour")
}

// killedBusy: NVIDIA calls it undefined what the other clients meet; the
// simulator takes the bad case.
func killedBusy(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[1]
	hold, release, err := st.hold(ctx, "beside")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	neighbour, err := st.submit(ctx, client(g.UUID, hold, "alloc 1000 until eof"))
	if err != nil {
		return err
	}
	busy, err := st.submit(ctx, client(g.UUID, hold, "alloc 1000 load 50 600s"))
	if err != nil {
		return err
	}
	n, err := st.waitClients(ctx, g.Index, 2, 1000)
	if err != nil {
		return err
	}
	server, _ := n.server(g.Index)
	if err := st.killBusy(ctx, g.Index); err != nil {
		return err
	}
	if err := st.waitJobs(ctx, busy, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, busy, "ExitSignal")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == "9", "job %d ended by signal %s", busy, rows[0][0])
	if err := st.checkEnd(ctx, user, neighbour, "1", "error 719", "its neighbour"); err != nil {
		return err
	}
	next, err := st.submit(ctx, client(g.UUID, noHold, "alloc 1000"))
	if err != nil {
		return err
	}
	if err := st.checkEnd(ctx, user, next, "0", "alloc 1000 MiB: ok", "the next job there"); err != nil {
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

// killBusy kills the one client of a GPU that works.
func (st *Stage) killBusy(ctx context.Context, index int) error {
	pid := 0
	_, err := st.waitSim(ctx, "a client that works", func(n simNode) bool {
		for _, p := range n.on(index, kindClient) {
			if p.Load > 0 {
				pid = p.PID
			}
		}
		return pid != 0
	})
	if err != nil {
		return err
	}
	st.Say("  kill -9 %d, an MPS client at work on GPU %d", pid, index)
	_, err = st.Run(ctx, "kill", "-KILL", fmt.Sprint(pid))
	return err
}
