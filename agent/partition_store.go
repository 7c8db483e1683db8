package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// partitionsFile holds the static SM partitions and whose they are, for the next
// agent; a reboot takes both away.
func partitionsFile(p config.Paths) string { return filepath.Join(p.Run, "partitions.json") }

// savedPartitions is that file.
type savedPartitions struct {
	Made []partitionSet `json:"made"`
	Held []holding      `json:"held"`
}

// write keeps everything. A node without partitions gets no file.
func (p *partitions) write() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	all := p.saved()
	if len(all.Made)+len(all.Held) == 0 {
		return nil
	}
	return store.WriteJSON(p.file, all)
}

// saved is what the file has of the partitions as they are now.
func (p *partitions) saved() savedPartitions {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := savedPartitions{Made: []partitionSet{}, Held: []holding{}}
	for _, u := range slices.Sorted(maps.Keys(p.made)) {
		all.Made = append(all.Made, p.made[u])
	}
	for _, h := range p.held {
		all.Held = append(all.Held, h)
	}
	slices.SortFunc(all.Held, func(a, b holding) int {
		return cmp.Or(strings.Compare(string(a.GPU), string(b.GPU)), cmp.Compare(a.Starter.Started, b.Starter.Started), cmp.Compare(a.Starter.PID, b.Starter.PID))
	})
	return all
}

// read takes over what an earlier agent left.
func (p *partitions) read() error {
	all, err := store.Store[savedPartitions]{Path: p.file}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = all.check()
	}
	if err != nil {
		err = fmt.Errorf("%w: GPUs with threads = \"partitioned\" stay closed until their jobs have ended and their control daemons were started again", err)
		return errors.Join(err, store.Aside(p.file))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, set := range all.Made {
		p.made[set.GPU] = set
	}
	for _, h := range all.Held {
		p.held[h.key()] = h
	}
	return nil
}

// check refuses what write does not write.
func (all savedPartitions) check() error {
	seen := map[gpu.UUID]bool{}
	for _, set := range all.Made {
		if _, err := gpu.ParseUUID(string(set.GPU)); err != nil || seen[set.GPU] || set.Daemon.PID <= 0 || set.SMs < 0 || len(set.IDs) != len(unique(set.IDs)) {
			return fmt.Errorf("the partitions of %s are not complete", foreign.Clip(string(set.GPU)))
		}
		seen[set.GPU] = true
	}
	holders, ids := map[jobs.Key]bool{}, []string{}
	for _, h := range all.Held {
		if _, err := gpu.ParseUUID(string(h.GPU)); err != nil || h.Starter.PID <= 0 || h.ID == "" || holders[h.key()] {
			return fmt.Errorf("the partition of %s is not complete", foreign.Clip(h.Starter.Slot))
		}
		holders[h.key()] = true
		ids = append(ids, string(h.GPU)+" "+h.ID)
	}
	if len(ids) != len(unique(ids)) {
		return errors.New("two slots hold one partition")
	}
	return nil
}

func unique(s []string) []string {
	s = slices.Sorted(slices.Values(s))
	return slices.Compact(s)
}
