package partitions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Have makes the partitions of a GPU that are missing, and reads them back. It says why the
// GPU has not all of them; empty if it has. Other: its control daemon has others than the
// plan's, and only another start of it helps. The deadline is that of one question to it.
func (p *Partitions) Have(
	ctx context.Context, g *plan.GPU, daemon process.ID, deadline time.Duration,
) (why string, other bool) {
	s := p.of(g.UUID, daemon)
	listed, err := p.list(ctx, g.UUID, deadline)
	if err != nil {
		if f := mps.FaultOf(err); len(s.IDs) == g.Shares && (f == mps.Busy || f == mps.Wedged) {
			return "", false // the health check looks after that
		}
		return "its static SM partitions are not known: " + mps.Reason(err), false
	}
	chunks := g.Threads.Partition.Chunks
	found := compare(listed, s.IDs, chunks, g.Shares)
	switch {
	case found.other != "":
		return "its static SM partitions are not the plan's (" + found.other + ")", true
	case found.missing == 0:
		return "", false
	case found.free != nil && *found.free < found.missing*chunks:
		return fmt.Sprintf("its control daemon has %d free chunks of multiprocessors, "+
			"too few for %d static SM partitions of %d: set shares to %d or less",
			*found.free, found.missing, chunks, max(1, g.Shares-found.missing+*found.free/chunks)), false
	}
	return p.makeMissing(ctx, g, s, deadline), false
}

// makeMissing adds what is missing, noting each, and reads all back.
func (p *Partitions) makeMissing(ctx context.Context, g *plan.GPU, s set, deadline time.Duration) (why string) {
	servers, err := p.daemons.Servers(ctx, g.UUID)
	clients := 0
	for _, srv := range servers {
		clients += len(srv.Clients)
	}
	if err != nil || clients > 0 {
		return fmt.Sprintf("its static SM partitions are missing and can be made only while it has no MPS clients, "+
			"and it has %d: they end with the jobs from before", clients)
	}
	chunks := g.Threads.Partition.Chunks
	unkept := func(err error) string {
		return fmt.Sprintf("its static SM partitions cannot be kept: %v: make the file writable", err)
	}
	for len(s.IDs) < g.Shares {
		id, err := p.add(ctx, g.UUID, chunks, deadline)
		if err == nil && slices.Contains(s.IDs, id) {
			err = fmt.Errorf("the control daemon gave the id %s twice: see its log", foreign.Clip(id))
		}
		if err != nil {
			return "a static SM partition cannot be made: " + mps.Reason(err)
		}
		s.IDs = append(s.IDs, id)
		if err := p.note(s); err != nil {
			return unkept(err)
		}
	}
	listed, err := p.list(ctx, g.UUID, deadline)
	if err != nil {
		return "its static SM partitions do not read back: " + mps.Reason(err)
	}
	if found := compare(listed, s.IDs, chunks, g.Shares); found.other != "" || found.missing > 0 {
		return fmt.Sprintf("its static SM partitions do not read back as made: %d missing %s", found.missing, found.other)
	}
	s.SMs = sizeOf(listed)
	p.log.Info("static SM partitions made",
		"gpu", g.UUID, "partitions", len(s.IDs), "chunks", chunks, "multiprocessors", s.SMs)
	if err := p.note(s); err != nil {
		return unkept(err)
	}
	return ""
}

func (p *Partitions) add(ctx context.Context, u gpu.UUID, chunks int, deadline time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return p.daemons.AddPartition(ctx, u, chunks)
}

// list leaves out what the daemon says of other GPUs.
func (p *Partitions) list(ctx context.Context, u gpu.UUID, deadline time.Duration) ([]mps.Partition, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	all, err := p.daemons.Partitions(ctx, u)
	return slices.DeleteFunc(all, func(l mps.Partition) bool {
		return !strings.HasPrefix(string(u), strings.TrimSuffix(l.GPU, "..."))
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

// compare finds each listed partition among those that were made. Names
// are cut in the list, so that their number and sizes count.
func compare(listed []mps.Partition, ids []string, chunks, shares int) comparison {
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
