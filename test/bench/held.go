package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// heldJobs is how many jobs go over their budget, one after the other.
const heldJobs = 6

// quickStartd makes HTCondor look often, and its log tell milliseconds.
const quickStartd = "POLLING_INTERVAL = 1\nEVENT_LOG_FORMAT_OPTIONS = UTC, ISO_DATE, SUB_SECOND\n"

// twin is two processes, each within what MPS lets it have.
const twin = `#!/bin/bash
simjob alloc 3000 load 20 600s &
simjob alloc 3000 load 20 600s &
wait -n
exit 1
`

// held measures, on a node with HTCondor, the time from the end of a job's MPS
// clients to its being held.
func held(ctx context.Context) (rows []row, err error) {
	const what = "MPS clients ended, to HTCondor's hold, POLLING_INTERVAL = 1"
	if why := node.Available(); why != nil {
		progress("no node here: %v", why)
		return []row{{what: what, got: "not measured: " + why.Error()}}, nil
	}
	progress("a node with HTCondor: %d jobs over their budget", heldJobs)
	inv, err := gpu.ReadInventory("test/site/testdata/v100s-2-h100.json")
	if err != nil {
		return nil, err
	}
	s, err := site.Start(ctx, site.Options{Leg: site.Sim, Inventory: &inv, Condor: quickStartd, Config: "[budgets]\ngrace = \"1s\"\n", Progress: os.Stderr})
	if err != nil {
		return nil, errors.Join(err, site.Unstage())
	}
	defer func() { err = errors.Join(err, s.Stop(), site.Unstage()) }()
	if err := s.WaitAccept(ctx, len(inv.GPUs)); err != nil {
		return nil, err
	}
	took, err := holds(ctx, s)
	if err != nil {
		return nil, err
	}
	return []row{{what, fmt.Sprintf("median %s, worst of %d %s", median(took).Round(time.Millisecond), len(took), slices.Max(took).Round(time.Millisecond)),
		"<= 3s", slices.Max(took) <= 3*time.Second}}, nil
}

// holds runs the jobs and reads from both logs when each was told to go and held.
func holds(ctx context.Context, s *site.Site) ([]time.Duration, error) {
	if err := s.WriteFile(ctx, "/home/alice/twin.sh", node.File{Data: twin, Mode: 0o755, Owner: "alice"}); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range heldJobs {
		cluster, err := s.Submit(ctx, "alice", "executable = twin.sh\nshould_transfer_files = yes\nrequest_gpus = 1\nrequest_vram = 4000\n"+
			"request_cpus = 1\nrequest_memory = 50\nrequest_disk = 10M\nqueue\n")
		if err != nil {
			return nil, err
		}
		if err := waitHeld(ctx, s, cluster); err != nil {
			return nil, err
		}
		log, err := s.JobLog(ctx, cluster)
		if err != nil {
			return nil, err
		}
		at, err := heldAt(log)
		if err != nil {
			return nil, err
		}
		journal, err := s.Run(ctx, "journalctl", "--no-pager", "-b", "-o", "short-unix", "-u", "gpuslotd.service")
		if err != nil {
			return nil, err
		}
		gone, err := endedAt(journal.Stdout, fmt.Sprintf("job=%d.0 ", cluster))
		if err != nil {
			return nil, err
		}
		took = append(took, at.Sub(gone))
	}
	return took, nil
}

const stateHeld = 5

func waitHeld(ctx context.Context, s *site.Site, cluster int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.WaitJobs(ctx, cluster, stateHeld)
}

var heldEvent = regexp.MustCompile(`(?m)^012 \([0-9.]+\) (\S+ \S+) Job was held`)

func heldAt(log string) (time.Time, error) {
	m := heldEvent.FindStringSubmatch(log)
	if m == nil {
		return time.Time{}, fmt.Errorf("no hold in the job's log:\n%s", log)
	}
	return time.Parse("2006-01-02 15:04:05.000Z07:00", m[1])
}

var slotOf = regexp.MustCompile(` slot=(\S+)`)

// endedAt is when the clients of a job's slot were gone, after the agent asked
// for the hold of that job.
func endedAt(journal, job string) (time.Time, error) {
	slot := ""
	for line := range strings.Lines(journal) {
		if strings.Contains(line, "HTCondor is to hold a job") && strings.Contains(line, job) {
			slot = slotOf.FindString(line)
		}
		if slot != "" && strings.Contains(line, "MPS clients ended") && strings.Contains(line, slot) {
			stamp, _, _ := strings.Cut(line, " ")
			seconds, err := strconv.ParseFloat(stamp, 64)
			return time.UnixMicro(int64(seconds * 1e6)), err
		}
	}
	return time.Time{}, fmt.Errorf("no end of clients for %s in the agent's journal", job)
}
