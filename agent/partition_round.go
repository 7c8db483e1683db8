package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// partition gives the GPUs of threads = "partitioned" their partitions and
// proves them, round by round. They end with their control daemon, and are made
// anew before the GPU opens. Where they cannot be had, the GPU is closed.
func (a *Agent) partition(ctx context.Context, p *plan.Plan, guards map[gpu.UUID]guard, deadline time.Duration) error {
	err := a.freePartitions()
	for i := range p.GPUs {
		g := &p.GPUs[i]
		now, ok := guards[g.UUID]
		if !g.Partitioned() || !ok || now.err != nil || now.otherwise != "" {
			continue
		}
		a.beat()
		guards[g.UUID] = a.partitionOne(ctx, g, now, deadline)
	}
	return err
}

// freePartitions drops those of slots that have ended.
func (a *Agent) freePartitions() error {
	a.jobs.Look(func(v *jobs.View) { a.partitions.free(a.inPartition(v)) })
	return a.partitions.write()
}

func (a *Agent) partitionOne(ctx context.Context, g *plan.GPU, now guard, deadline time.Duration) guard {
	daemon := now.proof.Process()
	why, other := a.havePartitions(ctx, g, daemon, deadline)
	if now.otherwise = why; !other {
		return now
	}
	if daemon == a.repartitioned[g.UUID] {
		now.otherwise = why + ", although its control daemon was started anew: see its log"
		return now
	}
	clients, err := a.allClients(ctx, g.UUID)
	if err != nil || len(clients) > 0 || a.jobs.Busy(g.UUID) || a.jobs.Unknown() != "" {
		now.otherwise = why + ": its control daemon starts anew when the jobs there have ended"
		return now
	}
	r := a.daemons.Restart(ctx, now.wanted)
	if now = now.next(now.wanted, r.Proof, r.Err); r.Err != nil {
		return now
	}
	a.log.Info("control daemon started anew for other partitions", "gpu", g.UUID, "pid", r.Proof.PID)
	a.repartitioned[g.UUID] = r.Proof.Process()
	now.otherwise, _ = a.havePartitions(ctx, g, r.Proof.Process(), deadline)
	return now
}

// havePartitions makes the partitions that are missing. It says why the GPU has
// not all of them; other means that the daemon has others than the plan's.
func (a *Agent) havePartitions(ctx context.Context, g *plan.GPU, daemon process.ID, deadline time.Duration) (why string, other bool) {
	set := a.partitions.of(g.UUID, daemon)
	listed, err := a.listPartitions(ctx, g.UUID, deadline)
	if err != nil {
		if f := mps.FaultOf(err); len(set.IDs) == g.Shares && (f == mps.Busy || f == mps.Wedged) {
			return "", false // the proofs of health look after that
		}
		return "its static SM partitions are not known: " + daemonSays(err), false
	}
	found := comparePartitions(listed, set.IDs, g.Threads.Partition.Chunks, g.Shares)
	switch {
	case found.other != "":
		return "its static SM partitions are not the plan's (" + found.other + ")", true
	case found.missing == 0:
		return "", false
	case found.free != nil && *found.free < found.missing*g.Threads.Partition.Chunks:
		return fmt.Sprintf("its control daemon has %d free chunks of multiprocessors, too few for %d static SM partitions of %d: set shares to %d or less",
			*found.free, found.missing, g.Threads.Partition.Chunks, max(1, g.Shares-found.missing+*found.free/g.Threads.Partition.Chunks)), false
	}
	return a.makePartitions(ctx, g, set, deadline), false
}

// makePartitions adds what is missing, noting each, and reads all back.
func (a *Agent) makePartitions(ctx context.Context, g *plan.GPU, set partitionSet, deadline time.Duration) (why string) {
	clients, err := a.allClients(ctx, g.UUID)
	if err != nil || len(clients) > 0 {
		return fmt.Sprintf("its static SM partitions are missing and can be made only while it has no MPS clients, and it has %d: they end with the jobs from before", len(clients))
	}
	for len(set.IDs) < g.Shares {
		id, err := a.addPartition(ctx, g, deadline)
		if err == nil && slices.Contains(set.IDs, id) {
			err = fmt.Errorf("the control daemon gave the id %s twice: see its log", foreign.Clip(id))
		}
		if err != nil {
			return "a static SM partition cannot be made: " + daemonSays(err)
		}
		set.IDs = append(set.IDs, id)
		if err := a.partitions.note(set); err != nil {
			return fmt.Sprintf("its static SM partitions cannot be kept: %v: make the file writable", err)
		}
	}
	listed, err := a.listPartitions(ctx, g.UUID, deadline)
	if err != nil {
		return "its static SM partitions do not read back: " + daemonSays(err)
	}
	if found := comparePartitions(listed, set.IDs, g.Threads.Partition.Chunks, g.Shares); found.other != "" || found.missing > 0 {
		return fmt.Sprintf("its static SM partitions do not read back as made: %d missing %s", found.missing, found.other)
	}
	set.SMs = sizeOf(listed)
	a.log.Info("static SM partitions made", "gpu", g.UUID, "partitions", len(set.IDs), "chunks", g.Threads.Partition.Chunks, "multiprocessors", set.SMs)
	if err := a.partitions.note(set); err != nil {
		return fmt.Sprintf("its static SM partitions cannot be kept: %v: make the file writable", err)
	}
	return ""
}

func (a *Agent) addPartition(ctx context.Context, g *plan.GPU, deadline time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return a.smPartitions.AddPartition(ctx, g.UUID, g.Threads.Partition.Chunks)
}

// listPartitions leaves out what the daemon says of other GPUs.
func (a *Agent) listPartitions(ctx context.Context, u gpu.UUID, deadline time.Duration) ([]mps.Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	all, err := a.smPartitions.Partitions(ctx, u)
	return slices.DeleteFunc(all, func(p mps.Partition) bool {
		return !strings.HasPrefix(string(u), strings.TrimSuffix(p.GPU, "..."))
	}), err
}

// comparison is what a daemon's list says of the partitions that were made.
type comparison struct {
	// other says what is there that was not made so; empty if nothing is.
	other string
	// missing is how many are to be made.
	missing int
	// free are the chunks that are left; nil if the daemon does not say.
	free *int
}

// comparePartitions finds each listed partition among those that were made. Names
// are cut in the list, so that their number and sizes count.
func comparePartitions(listed []mps.Partition, ids []string, chunks, shares int) comparison {
	left, there := slices.Clone(ids), 0
	var c comparison
	for _, p := range listed {
		if p.Name == "" {
			c.free = p.FreeChunks
			continue
		}
		there++
		i := slices.IndexFunc(left, func(id string) bool {
			_, name, _ := strings.Cut(id, "/")
			return strings.HasPrefix(name, strings.TrimSuffix(p.Name, "..."))
		})
		switch {
		case i < 0:
			c.other = "one was not made by gpuslot"
		case p.UsedChunks == nil || *p.UsedChunks != chunks:
			c.other = fmt.Sprintf("one is not of %d chunks", chunks)
			fallthrough
		default:
			left = slices.Delete(left, i, i+1)
		}
	}
	switch {
	case c.other != "":
	case len(left) > 0:
		c.other = fmt.Sprintf("%d of %d are gone", len(left), len(ids))
	case there > shares:
		c.other = fmt.Sprintf("there are %d for %d shares", there, shares)
	default:
		c.missing = shares - there
	}
	return c
}

// sizeOf is the SMs of each partition; 0 if the list does not say, or they differ.
func sizeOf(listed []mps.Partition) int {
	size := 0
	for _, p := range listed {
		switch {
		case p.Name == "":
		case p.UsedSMs == nil || size != 0 && *p.UsedSMs != size:
			return 0
		default:
			size = *p.UsedSMs
		}
	}
	return size
}
