package partitions

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

// File has the static SM partitions and whose they are. A reboot takes both away.
func File(p config.Paths) string { return filepath.Join(p.Run, "partitions.json") }

// saved is that file.
type saved struct {
	Made []set   `json:"made"`
	Held []owned `json:"held"`
}

// Write keeps everything for the next agent. A node without partitions gets no file.
func (p *Partitions) Write() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	all := p.now()
	if len(all.Made)+len(all.Held) == 0 {
		return nil
	}
	return store.WriteJSON(p.file, all)
}

// now is what the file has of the partitions as they are now.
func (p *Partitions) now() saved {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := saved{Made: []set{}, Held: []owned{}}
	for _, u := range slices.Sorted(maps.Keys(p.made)) {
		all.Made = append(all.Made, p.made[u])
	}
	for _, o := range p.had {
		all.Held = append(all.Held, o)
	}
	slices.SortFunc(all.Held, func(a, b owned) int {
		return cmp.Or(strings.Compare(string(a.GPU), string(b.GPU)),
			cmp.Compare(a.Starter.Started, b.Starter.Started), cmp.Compare(a.Starter.PID, b.Starter.PID))
	})
	return all
}

// Read takes over what an earlier agent left. After an error nothing is known and the file is
// renamed.
func (p *Partitions) Read() error {
	all, err := store.Store[saved]{Path: p.file}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = all.check()
	}
	if err != nil {
		err = fmt.Errorf("%w: GPUs with threads = \"partitioned\" stay closed until their jobs have ended "+
			"and their control daemons were started again", err)
		return errors.Join(err, store.Aside(p.file))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range all.Made {
		p.made[s.GPU] = s
	}
	for _, o := range all.Held {
		p.had[o.key()] = o
	}
	return nil
}

// check refuses what Write does not write.
func (all saved) check() error {
	seen := map[gpu.UUID]bool{}
	for _, s := range all.Made {
		_, err := gpu.ParseUUID(string(s.GPU))
		if err != nil || seen[s.GPU] || s.Daemon.PID <= 0 || s.SMs < 0 || len(s.IDs) != len(unique(s.IDs)) {
			return fmt.Errorf("the partitions of %s are not complete", foreign.Clip(string(s.GPU)))
		}
		seen[s.GPU] = true
	}
	slots, ids := map[jobs.Key]bool{}, []string{}
	for _, o := range all.Held {
		_, err := gpu.ParseUUID(string(o.GPU))
		if err != nil || o.Starter.PID <= 0 || o.ID == "" || slots[o.key()] {
			return fmt.Errorf("the partition of %s is not complete", foreign.Clip(o.Starter.Slot))
		}
		slots[o.key()] = true
		ids = append(ids, string(o.GPU)+" "+o.ID)
	}
	if len(ids) != len(unique(ids)) {
		return errors.New("two slots have one partition")
	}
	return nil
}

func unique(s []string) []string {
	s = slices.Sorted(slices.Values(s))
	return slices.Compact(s)
}
