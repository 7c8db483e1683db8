package scenes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// largeAfter is how long a large job waits in this scene before a GPU is closed to
// small ones; small jobs have smallMiB and run for smallSeconds at most.
const (
	largeAfter   = 10 * time.Second
	smallSeconds = 24
	smallMiB     = 8192
)

// A stream of jobs of 8 GB holds two GPUs so full that one of 20 GB would wait until
// the stream has ended: it starts once it has waited its time and the small ones on one
// GPU have ended. The first small ones run until the GPUs are full, however slowly jobs
// start. Then how a slot weighs, and how jobs are packed onto one GPU.
func TestPlacement(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{Condor: countsOften, Config: fmt.Sprintf("[placement]\nlarge_after = %q\nslot_weight = \"cpus-or-vram\"\n\n[sharing]\nshares = 15\n", largeAfter)})
	must(t, st.WaitAccept(ctx, 2))
	must(t, st.pack(ctx))

	full, release := holdFor(t, st, "full")
	stream, err := st.submit(ctx, job{Lines: vram(smallMiB),
		Program: program{"small.sh", fmt.Sprintf("#!/bin/sh\ncat $2\nsleep $((%d + $1 %% %d))\n",
			smallSeconds/2, smallSeconds/2)},
		Arguments: "$(Process) " + full, Queue: "queue 90"})
	must(t, err)
	must(t, st.waitRunning(ctx, 6))
	release()
	var waits []time.Duration
	for range 2 {
		begin := time.Now()
		// In front of the user's own queue, of which an access point offers the
		// negotiator 20 jobs at a time (seen on 25.14.1).
		large, err := st.submit(ctx, job{Seconds: 1, Lines: vram(20480, "priority = 1")})
		must(t, err)
		must(t, st.waitJobs(ctx, large, running, completed))
		waits = append(waits, time.Since(begin))
		left, err := st.Run(ctx, "condor_q", "-all", "-constraint", fmt.Sprintf("ClusterId == %d && JobStatus == 1", stream), "-af", "ProcId")
		must(t, err)
		small := len(strings.Fields(left.Stdout))
		st.Check(small > 0, "the large job overtook %d small ones that wait", small)
		must(t, st.waitJobs(ctx, large, completed))
	}
	st.Say("20 GB jobs in a stream of 8 GB jobs started after %s (T = %s, the small ones run for %d s at most)",
		waits, largeAfter, smallSeconds)
	out, err := st.Run(ctx, "condor_status", "-constraint", fmt.Sprintf(`SlotType == "Dynamic" && VRAM == %d`, smallMiB),
		"-limit", "1", "-af", "SlotWeight", "Cpus", "GPUSlotCpusPerMiB")
	must(t, err)
	var weight, cpus, per float64
	_, err = fmt.Sscan(out.Stdout, &weight, &cpus, &per)
	must(t, err)
	st.Check(weight == max(cpus, smallMiB*per),
		"a slot of %g CPUs and %d MiB weighs %g, the larger of its CPUs and %g", cpus, smallMiB, weight, smallMiB*per)
	must(t, st.remove(ctx, stream))
	done(t, st)
}

// waitRunning waits until so many jobs run.
func (st *Stage) waitRunning(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, fmt.Sprintf("%d running jobs", count), func() bool {
		out, err := st.Run(ctx, "condor_q", "-all", "-constraint", "JobStatus == 2", "-af", "ProcId")
		return err == nil && len(strings.Fields(out.Stdout)) >= count
	})
}

// pack tries both of the negotiator's placements with jobs that come one by one.
func (st *Stage) pack(ctx context.Context) error {
	for _, c := range []struct {
		place string
		gpus  int
	}{{"pack", 1}, {"spread", 2}} {
		text, err := st.Run(ctx, "gpuslot", "condor-config", "--for", "negotiator", "--placement", c.place)
		if err != nil {
			return err
		}
		if err := st.WriteFile(ctx, "/etc/condor/config.d/95-placement.config", node.File{Data: text.Stdout}); err != nil {
			return err
		}
		if _, err := st.Run(ctx, "condor_reconfig"); err != nil {
			return err
		}
		used := map[gpu.UUID]bool{}
		var clusters []int
		for range 4 {
			cluster, u, err := st.runningOn(ctx, job{Seconds: 3600, Lines: vram(2048)})
			if err != nil {
				return err
			}
			used[u] = true
			clusters = append(clusters, cluster)
		}
		st.Check(len(used) == c.gpus, "%s: four jobs one after the other are on %d GPUs", c.place, len(used))
		for _, cluster := range clusters {
			if err := st.remove(ctx, cluster); err != nil {
				return err
			}
		}
	}
	return nil
}
