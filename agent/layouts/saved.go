package layouts

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// File is what is remembered of layouts that follow the waiting work.
func File(p config.Paths) string { return filepath.Join(p.State, "repartition.json") }

// saved outlives the agent and the boot.
type saved struct {
	// Past is the policy's, Said what was logged last, by setting.
	Past map[mig.Repartition]mig.Past `json:"past,omitempty"`
	Said map[mig.Repartition]string   `json:"said,omitempty"`
	// Chosen are the layouts that were decided on, which go before mig_layout.
	Chosen map[gpu.UUID]string `json:"chosen,omitempty"`
}

func (s *saved) remember(how mig.Repartition, past mig.Past) {
	if s.Past == nil {
		s.Past = map[mig.Repartition]mig.Past{}
	}
	s.Past[how] = past
}

// choose takes over a plan, and names the GPUs that it changes.
func (s *saved) choose(p mig.Plan) (changed []gpu.UUID) {
	if s.Chosen == nil {
		s.Chosen = map[gpu.UUID]string{}
	}
	for _, g := range p.GPUs {
		if len(g.Created)+len(g.Destroyed) > 0 {
			s.Chosen[g.GPU] = g.After
			changed = append(changed, g.GPU)
		}
	}
	return changed
}

// steer puts a chosen layout before those of the configuration.
func (s *saved) steer(g plan.MIGGPU) plan.MIGGPU {
	if chosen := s.Chosen[g.UUID]; chosen != "" && g.Repartition == mig.Auto {
		g.Placed = append([]string{chosen}, g.Placed...)
	}
	return g
}

// forget drops what is of GPUs that do not follow any more: their layouts are mig_layout's
// again.
func (l *Layouts) forget(p *plan.Plan) {
	maps.DeleteFunc(l.saved.Chosen, func(u gpu.UUID, _ string) bool {
		return !slices.ContainsFunc(p.MIG, func(g plan.MIGGPU) bool { return g.UUID == u && g.Repartition == mig.Auto })
	})
	for _, how := range following {
		if !follows(p, how) {
			delete(l.saved.Past, how)
			delete(l.saved.Said, how)
		}
	}
	if p.Repartition() != mig.Auto {
		l.kept = nil
	}
}

// Read takes over what an earlier agent remembered. After an error the policy begins at its
// start and the layouts are those of the configuration; the file is renamed.
func (l *Layouts) Read() error {
	path := File(l.paths)
	s, err := store.Store[saved]{Path: path}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(err, store.Aside(path))
	}
	l.saved = s
	return nil
}

// write keeps what is remembered. There is no file where nothing is.
func (l *Layouts) write() error {
	if len(l.saved.Past)+len(l.saved.Chosen)+len(l.saved.Said) == 0 {
		return store.Remove(File(l.paths))
	}
	return store.WriteJSON(File(l.paths), l.saved)
}
