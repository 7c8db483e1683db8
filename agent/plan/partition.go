package plan

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/mps"
)

// Partitioned reports whether each share of the GPU has a static SM partition.
func (g GPU) Partitioned() bool {
	return g.MPS() && g.Threads.Policy == config.ThreadsPartitioned
}

// chunksOf is of how many chunks a card's partitions are made, and the SMs of
// one; why says why there are none.
func chunksOf(c candidate) (chunks, sms int, why string) {
	sms, ok := mps.ChunkSMs(c.Capability)
	switch {
	case !ok:
		return 0, sms, "static SM partitions need the Ampere generation (compute capability 8.0) or newer, and this " +
			c.Name + " has " + c.Capability.String()
	case c.Multiprocessors == 0:
		return 0, sms, "how many multiprocessors this " + c.Name + " has is not known"
	}
	return c.Multiprocessors / sms, sms, ""
}

// unpartitionable says why a card cannot have a partition for each of so many
// shares; empty if it can.
func unpartitionable(c candidate, shares int) string {
	chunks, sms, why := chunksOf(c)
	if why == "" && chunks < shares {
		why = fmt.Sprintf("its %d multiprocessors are %s of %d, too few for %d "+
			"shares", c.Multiprocessors, counted(chunks, "chunk", "chunks"), sms, shares)
	}
	return why
}

// partitioned completes the policy of a card whose shares are to have
// partitions, all of one size. One that only inherits the wish, which others
// meet, has thread percentages instead.
func partitioned(c candidate, g GPU, w wishes, n *notes) Threads {
	t := g.Threads
	if t.Policy != config.ThreadsPartitioned {
		return t
	}
	if Partitions.Lacks(c.driver) {
		n.fail(c.UUID, `%s; use threads = "equal"`, Partitions.needs(c.driver))
		return t
	}
	chunks, sms, _ := chunksOf(c)
	switch why := unpartitionable(c, g.Shares); {
	case why == "":
	case w.partitions && w.inheritsThreads(c):
		n.warn(c.UUID, `threads are "equal" instead of "partitioned": %s`, why)
		return Threads{Policy: config.ThreadsEqual, Most: t.Most}
	case chunks > 0:
		n.fail(c.UUID, `threads = "partitioned": %s: set shares to %d or less, or use threads = "equal"`, why, chunks)
		return t
	default:
		n.fail(c.UUID, `threads = "partitioned": %s: use threads = "equal"`, why)
		return t
	}
	if t.Most != 0 {
		n.warn(
			c.UUID,
			`threads_max means nothing with threads = "partitioned": no job gets more than its share's multiprocessors`,
		)
		t.Most = 0
	}
	size := chunks / g.Shares
	t.Partition = Partition{Chunks: size, SMs: size * sms, Unused: c.Multiprocessors - g.Shares*size*sms}
	return t
}

// tenths is the partition's part of the GPU's multiprocessors, in tenths.
func (p Partition) tenths(shares int) int64 {
	return int64(p.SMs) * 1000 / int64(max(1, p.SMs*shares+p.Unused))
}
