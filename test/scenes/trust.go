package scenes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// twinJob is two processes, each within the limit that MPS holds it to. The job
// ends as soon as one of them does, as programs that meet an error do.
var twinJob = program{"twin.sh", `#!/bin/bash
simjob alloc "$1" load 20 600s &
simjob alloc "$1" load 20 600s &
wait -n
echo "one ended with $?"
exit 1
`}

// overBudget: MPS limits a process, gpuslot the job.
func overBudget(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[0]
	beside, err := st.neighbour(ctx, g.UUID, "over")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	over, err := st.startTwins(ctx, g)
	if err != nil {
		return err
	}
	if err := st.checkHeld(ctx, over, time.Now()); err != nil {
		return err
	}
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	return beside.leave(ctx, "its neighbour runs on")
}

// startTwins runs a job over its budget beside one client on a GPU.
func (st *Stage) startTwins(ctx context.Context, g gpu.GPU) (cluster int, err error) {
	twin := client(g.UUID, "", "")
	twin.Program, twin.Arguments = twinJob, "3000"
	if cluster, err = st.submit(ctx, twin); err != nil {
		return 0, err
	}
	_, err = st.waitClients(ctx, g.Index, 3, 1000)
	return cluster, err
}

// checkHeld waits until HTCondor holds the twins, with the request to make.
func (st *Stage) checkHeld(ctx context.Context, cluster int, begin time.Time) error {
	if err := st.waitJobs(ctx, cluster, held); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "HoldReasonCode", "HoldReasonSubCode", "HoldReason")
	if err != nil {
		return err
	}
	code, sub, reason := rows[0][0], rows[0][1], rows[0][2]
	st.Check(code == "21" && sub == "76" && strings.Contains(reason, "MiB of 4096 MiB requested: ask for request_vram = "),
		"two processes of 3000 MiB each in a budget of 4096 MiB: held after %s (%s/%s): %s", time.Since(begin).Round(time.Second), code, sub, reason)
	return nil
}

// removedBusy: HTCondor's signal reaches a job whose clients have left.
func removedBusy(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[1]
	beside, err := st.neighbour(ctx, g.UUID, "removed")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	for _, end := range []struct {
		verb string
		do   func(cluster int) error
	}{
		{"condor_vacate_job", func(cluster int) error { return st.evict(ctx, cluster) }},
		{"condor_rm", func(cluster int) error { return st.remove(ctx, cluster) }},
	} {
		busy, err := st.submit(ctx, client(g.UUID, beside.hold, "alloc 1000 load 50 600s"))
		if err != nil {
			return err
		}
		if _, err := st.waitBusy(ctx, g.Index); err != nil {
			return err
		}
		if err := end.do(busy); err != nil {
			return err
		}
		if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
			return err
		}
		line, err := st.endedCleanly(ctx, g.UUID, busy)
		if err != nil {
			return err
		}
		st.Check(line != "", "%s: its client left before the signal: %s", end.verb, oneLine(line))
	}
	return beside.leave(ctx, "its neighbour runs on")
}

// evict sends a job back into the queue, where it is to stay.
func (st *Stage) evict(ctx context.Context, cluster int) error {
	if _, err := st.RunAs(ctx, user, "condor_vacate_job", strconv.Itoa(cluster)); err != nil {
		return err
	}
	if _, err := st.waitLog(ctx, cluster, "Job was evicted"); err != nil {
		return err
	}
	return st.remove(ctx, cluster)
}

// endedCleanly is the agent's word that the clients of a job were let go.
func (st *Stage) endedCleanly(ctx context.Context, u gpu.UUID, cluster int) (string, error) {
	log, err := st.Journal(ctx, "gpuslotd.service")
	if err != nil {
		return "", err
	}
	slot := ""
	for line := range strings.Lines(log) {
		if slot == "" && strings.Contains(line, "admitted a job") && strings.Contains(line, fmt.Sprintf("job=%d.0 ", cluster)) {
			_, rest, _ := strings.Cut(line, "slot=")
			slot, _, _ = strings.Cut(rest, " ")
		}
	}
	return lineWith(log, fmt.Sprintf("MPS clients ended\" gpu=%s slot=%s ", u, slot)), nil
}

// serverFault: one client's fatal error ends the work of all on its GPU, closes
// it while the server cannot take others, and leaves the other GPUs alone.
func serverFault(ctx context.Context, st *Stage) (err error) {
	g, other := st.Inventory.GPUs[0], st.Inventory.GPUs[1]
	elsewhere, err := st.neighbour(ctx, other.UUID, "fault")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, elsewhere.release()) }()
	// It stays although its context is lost, as programs do that catch errors.
	stubborn, err := st.submit(ctx, client(g.UUID, elsewhere.hold, "go on alloc 1000 until eof sleep 600s"))
	if err != nil {
		return err
	}
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	culprit, err := st.complete(ctx, client(g.UUID, noHold, "alloc 500 load 20 8s fault illegal_address"))
	if err != nil {
		return err
	}
	reason, err := st.waitClosed(ctx, g.UUID)
	if err != nil {
		return err
	}
	st.Check(strings.Contains(reason, "FAULT") || strings.Contains(reason, "Xid 31"), "GPU %d is closed: %s", g.Index, reason)
	if err := st.waitTold(ctx, g.UUID, culprit); err != nil {
		return err
	}
	st.Check(true, "the history names the jobs that were there, with that of the fault")
	if err := st.WaitAccept(ctx, len(st.Inventory.GPUs)); err != nil {
		return err
	}
	st.Check(true, "it opens again when the last client that the fault met has been ended")
	if err := st.checkKilled(ctx, stubborn, "that client"); err != nil {
		return err
	}
	if err := st.checkServes(ctx, g.UUID, "the next job there"); err != nil {
		return err
	}
	return elsewhere.leave(ctx, "a job on GPU "+strconv.Itoa(other.Index)+" meanwhile")
}

// waitTold waits until the history says of a GPU's fault that a job was there.
func (st *Stage) waitTold(ctx context.Context, u gpu.UUID, cluster int) error {
	want := regexp.MustCompile(fmt.Sprintf(`.*msg="MPS server in FAULT" gpu=%s .*jobs=.*%d\.0 on `, u, cluster))
	return st.Wait(ctx, fmt.Sprintf("a fault beside job %d.0 to be told", cluster), func() bool {
		log, err := st.Journal(ctx, "gpuslotd.service")
		return err == nil && want.MatchString(log)
	})
}
