package sim

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestPlannedLayouts: the layouts that package mig plans with are those of the
// published table, which TestLayouts holds the simulated library to by creating
// them: what is decided offline and what the driver allows are the same.
func TestPlannedLayouts(t *testing.T) {
	all, err := models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.Model, func(t *testing.T) {
			chip := m.chip()
			var got []string
			layouts, err := mig.Enumerate(chip)
			if err != nil {
				t.Fatal(err)
			}
			for l := range layouts.All() {
				words := make([]string, len(l))
				for i, p := range l {
					words[i] = fmt.Sprintf("%d@%d", p.Profile, p.Start)
				}
				sort.Strings(words)
				got = append(got, strings.Join(words, " "))
			}
			sort.Strings(got)
			if d := cmp.Diff(m.fromTable("all"), got); d != "" {
				t.Errorf("layouts by table and by package mig differ (-table +mig):\n%s", d)
			}
			if chip.Units() != m.Units || chip.Slices() != m.Slices || chip.Engines() != engines(m.Engines) {
				t.Errorf("%d units, %d slices, engines %v; want %d, %d, %v", chip.Units(), chip.Slices(), chip.Engines(), m.Units, m.Slices, m.Engines)
			}
		})
	}
}

// chip is the model as an adapter of NVML would fill it in.
func (m model) chip() gpu.Chip {
	c := gpu.Chip{Model: m.Model}
	for _, p := range m.Profiles {
		c.Profiles = append(c.Profiles, gpu.Profile{ID: gpu.ProfileID(p.ID), Name: p.Name, Slices: p.Slices,
			Starts: p.Starts, Size: p.Size, Max: p.Max, Engines: engines(p.Engines)})
	}
	return c
}

func engines(e [4]int) gpu.Engines {
	return gpu.Engines{Decoders: e[0], Encoders: e[1], JPEG: e[2], OFA: e[3]}
}

// TestPublishedModels: the tables of package mig have each model of the
// simulator, with the same profiles.
func TestPublishedModels(t *testing.T) {
	all, err := models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Model == "RTXPRO5000" {
			continue // its ids are guessed, so package mig does not plan for it offline
		}
		found := false
		for _, key := range mig.Models() {
			if !strings.HasPrefix(key, m.Model) {
				continue
			}
			found = true
			have, err := mig.Model(key, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range m.chip().Profiles {
				q, ok := have.Profile(p.ID)
				q.Multiprocessors, q.Memory = 0, 0 // not in the sums
				if d := cmp.Diff(p, q); !ok || d != "" {
					t.Errorf("%s: %s (-simulator +mig):\n%s", key, p.Name, d)
				}
			}
		}
		if !found {
			t.Errorf("package mig has no %s; it has %v", m.Model, mig.Models())
		}
	}
}
