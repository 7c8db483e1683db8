package agent

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

// repartitionFile is what the agent remembers of layouts that follow the work.
func repartitionFile(p config.Paths) string { return filepath.Join(p.State, "repartition.json") }

// savedRepartition outlives the agent and the boot.
type savedRepartition struct {
	// Past is the policy's, Said what was told last, by setting.
	Past map[mig.Repartition]mig.Past `json:"past,omitempty"`
	Said map[mig.Repartition]string   `json:"said,omitempty"`
	// Chosen are the layouts that were decided on, which go before mig_layout.
	Chosen map[gpu.UUID]string `json:"chosen,omitempty"`
}

func (s *savedRepartition) remember(how mig.Repartition, past mig.Past) {
	if s.Past == nil {
		s.Past = map[mig.Repartition]mig.Past{}
	}
	s.Past[how] = past
}

func (s *savedRepartition) say(how mig.Repartition, text string) {
	if s.Said == nil {
		s.Said = map[mig.Repartition]string{}
	}
	s.Said[how] = text
}

// choose takes over a plan, and names the GPUs that it changes.
func (s *savedRepartition) choose(p mig.Plan) (changed []gpu.UUID) {
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

// forget drops what is of GPUs that do not follow any more: their layouts are
// mig_layout's again.
func (r *repartition) forget(p plan.Plan) {
	auto := func(u gpu.UUID) bool {
		return slices.ContainsFunc(p.MIG, func(g plan.MIGGPU) bool { return g.UUID == u && g.Repartition == mig.Auto })
	}
	maps.DeleteFunc(r.saved.Chosen, func(u gpu.UUID, _ string) bool { return !auto(u) })
	for _, how := range following {
		if !slices.ContainsFunc(p.MIG, func(g plan.MIGGPU) bool { return g.Repartition == how }) {
			delete(r.saved.Past, how)
			delete(r.saved.Said, how)
		}
	}
	if p.Repartition() != mig.Auto {
		r.kept = nil
	}
}

// steer puts a chosen layout before those of the configuration.
func (r *repartition) steer(g plan.MIGGPU) plan.MIGGPU {
	if chosen := r.saved.Chosen[g.UUID]; chosen != "" && g.Repartition == mig.Auto {
		g.Placed = append([]string{chosen}, g.Placed...)
	}
	return g
}

// read takes over what an earlier agent remembered. Without it the policy begins
// anew and the layouts are those of the configuration.
func (r *repartition) read(path string) error {
	saved, err := store.Store[savedRepartition]{Path: path}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(err, store.Aside(path))
	}
	r.saved = saved
	return nil
}

// write is atomic; nothing is written where nothing is remembered.
func (s savedRepartition) write(path string) error {
	if len(s.Past)+len(s.Chosen)+len(s.Said) == 0 {
		return store.Remove(path)
	}
	return store.WriteJSON(path, s)
}
