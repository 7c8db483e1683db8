package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Static SM partitions exist on R590 and newer, in a daemon that was started
// with -S (Capabilities.StaticPartitions). There every client must name its
// partition in PartitionVariable, and thread percentages mean nothing. None of
// this was run for real: the words are those of NVIDIA's documentation and of
// published scripts.

// PartitionVariable is what a client needs in its environment: Partition.ID.
const PartitionVariable = "CUDA_MPS_SM_PARTITION"

// PartitionFlag starts a control daemon that has static SM partitions.
const PartitionFlag = "-S"

// ChunkSMs is how many SMs a chunk has, the unit of which partitions are made:
// 8 from Hopper on, 4 before; false before Ampere, where there are none (MPS
// documentation, release 590, "Static SM partitioning", protocol 2).
func ChunkSMs(c gpu.ComputeCapability) (sms int, ok bool) {
	ampere, hopper := gpu.ComputeCapability{Major: 8}, gpu.ComputeCapability{Major: 9}
	switch {
	case c.Before(ampere):
		return 0, false
	case c.Before(hopper):
		return 4, true
	}
	return 8, true
}

// Partition is one line of lspart: a partition, or, with an empty Name, what is
// left of the whole GPU. Nil is what the daemon does not say.
type Partition struct {
	// GPU is the beginning of the GPU's UUID, as the daemon prints it.
	GPU string
	// Name is what follows the slash in a partition's id; it may be cut short.
	Name                   string
	FreeChunks, UsedChunks *int
	FreeSMs, UsedSMs       *int
	// HasClients says whether clients use it; it cannot be removed then.
	HasClients *bool
}

// Partitions lists them (lspart).
func (d *Daemon) Partitions(ctx context.Context) ([]Partition, error) {
	reply, err := d.Command(ctx, "lspart")
	if err != nil {
		return nil, err
	}
	return d.readPartitions(reply)
}

func (d *Daemon) readPartitions(reply string) ([]Partition, error) {
	if isRefusal(reply) {
		return nil, d.noPartitions(reply)
	}
	all, err := parsePartitions(reply)
	if err != nil {
		return nil, d.fault(Refused, err, "%v: its lspart has a form that gpuslot does not know", err)
	}
	return all, nil
}

func (d *Daemon) noPartitions(reply string) error {
	return d.fault(Refused, nil, "it answers %s: static SM partitions need driver R590 or newer and a daemon started "+
		"with -S", printable(reply))
}

// AddPartition makes a partition of some chunks of SMs and returns its id, as
// clients need it: "<GPU UUID>/<name>". A chunk is 8 SMs from Hopper on, 4
// before. An answer that was lost may have made one: look at Partitions after
// an error.
func (d *Daemon) AddPartition(ctx context.Context, chunks int) (string, error) {
	if chunks < 1 {
		return "", d.fault(Invalid, nil, "a partition of %d chunks cannot be: ask for one or more", chunks)
	}
	reply, err := d.Command(ctx, fmt.Sprintf("sm_partition add %s %d", d.gpu, chunks))
	if err != nil {
		return "", err
	}
	id, ok := parsePartitionID(reply, string(d.gpu))
	if !ok {
		return "", d.noPartitions(reply)
	}
	return id, nil
}

// RemovePartition removes a partition that AddPartition made, and proves it
// gone. One that has clients stays.
func (d *Daemon) RemovePartition(ctx context.Context, id string) error {
	_, name, ok := strings.Cut(id, "/")
	if !ok || strings.ContainsAny(name, " \t\n") || name == "" {
		return d.fault(Invalid, nil, "%s is no id of a partition: take one from AddPartition", printable(id))
	}
	replies, _, err := d.converse(ctx, fmt.Sprintf("sm_partition rm %s %s", d.gpu, name), "lspart")
	if err != nil {
		return err
	}
	left, err := d.readPartitions(replies[1])
	if err != nil {
		return err
	}
	if slices.ContainsFunc(left, func(p Partition) bool {
		return p.Name != "" && strings.HasPrefix(name, strings.TrimSuffix(p.Name, "..."))
	}) {
		return d.fault(Refused, nil, "it answers %s and keeps partition %s: remove it when its clients have "+
			"ended", printable(replies[0]), foreign.Clip(name))
	}
	return nil
}

// parsePartitionID finds the id in "Partition GPU-…/D… created", or alone in
// the reply, as the first documentation had it. A name is
// base64, which may hold slashes.
func parsePartitionID(reply, gpu string) (string, bool) {
	for word := range strings.FieldsSeq(reply) {
		before, name, ok := strings.Cut(word, "/")
		if ok && name != "" && strings.EqualFold(before, gpu) {
			return word, true
		}
	}
	return "", false
}

// parsePartitions reads the table of lspart by position; its two head lines do
// not begin with a GPU.
//
//	GPU           Partition   free   used   free  used  clients
//	                          chunk  chunk  SM    SM
//	GPU-74d43ed3  -           0      8      74    56    -
//	GPU-74d43ed3  Dx4AAA...   -      7      -     56    Yes
func parsePartitions(reply string) ([]Partition, error) {
	var all []Partition
	for line := range strings.SplitSeq(reply, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "GPU-") {
			continue
		}
		if len(f) < 7 {
			return nil, fmt.Errorf("the line %s has %d columns, want 7", printable(line), len(f))
		}
		p := Partition{GPU: f[0]}
		if f[1] != "-" {
			p.Name = f[1]
		}
		for i, to := range []**int{&p.FreeChunks, &p.UsedChunks, &p.FreeSMs, &p.UsedSMs} {
			n, err := countOf(f[2+i])
			if err != nil {
				return nil, fmt.Errorf("the line %s: %w", printable(line), err)
			}
			*to = n
		}
		switch strings.ToLower(f[6]) {
		case "yes", "no":
			has := strings.EqualFold(f[6], "yes")
			p.HasClients = &has
		}
		all = append(all, p)
	}
	return all, nil
}

// countOf is a number, or nil for "-".
func countOf(s string) (*int, error) {
	if s == "-" {
		return nil, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%s is no count", printable(s))
	}
	return &n, nil
}
