package mig

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gpuslot/gpuslot/gpu"
)

// profilesFile is what is published of the models, with its sources.
//
//go:embed profiles.json
var profilesFile []byte

// A model in the file. Pointers are nil where a number is not published.
type model struct {
	Key, Product    string
	Names           []string
	Capability      gpu.ComputeCapability `json:"compute_capability"`
	Multiprocessors *int
	Profiles        []struct {
		Name            string
		ID              *gpu.ProfileID
		Slices          int
		Starts          []int
		Size, Max       int
		Multiprocessors *int
		Memory          *gpu.MiB `json:"memory_mib"`
		Engines         [4]int
		MinDriver       int `json:"min_driver"`
	}
}

var models = sync.OnceValues(func() ([]model, error) { // a plan asks for each GPU; nobody changes them
	var f struct{ Models []model }
	if err := json.Unmarshal(profilesFile, &f); err != nil {
		return nil, fmt.Errorf("the tables of MIG profiles in this program: %w", err)
	}
	return f.Models, nil
})

// ErrUnpublished says that a model's profile ids and placements are not published: its driver alone tells its layouts.
var ErrUnpublished = errors.New("its MIG placements are not published; plan on a node that has one")

// Models are the keys of the models whose layouts are published ("A100-40GB").
func Models() []string {
	ms, _ := models() // a broken table shows in Model, which has an error
	var keys []string
	for _, m := range ms {
		if m.published() {
			keys = append(keys, m.Key)
		}
	}
	return keys
}

// Model is the published chip of a key, written as Models does or without the
// final GB, in any case; or of NVML's name of a GPU, as gpuslot.toml has it. Driver is
// the major version for which it is asked, which decides what exists (double memory from 525, 4g beside 3g from 510); 0
// stands for any recent one.
func Model(key string, driver int) (gpu.Chip, error) {
	ms, err := models()
	if err != nil {
		return gpu.Chip{}, err
	}
	for _, m := range ms {
		if strings.EqualFold(key, m.Key) || strings.EqualFold(key+"GB", m.Key) {
			return m.publishedChip(driver)
		}
	}
	ms = slices.DeleteFunc(slices.Clone(ms), func(m model) bool { return !m.isNamed(key) })
	switch len(ms) {
	case 0:
		return gpu.Chip{}, fmt.Errorf("no MIG model %q; there are %s", key, strings.Join(Models(), ", "))
	case 1:
		return ms[0].publishedChip(driver)
	}
	var keys []string
	for _, m := range ms {
		keys = append(keys, m.Key)
	}
	return gpu.Chip{}, fmt.Errorf("%q is several MIG models; write one of %s", key, strings.Join(keys, ", "))
}

// isNamed compares the words of a GPU's name, and its size if the name has one.
func (m model) isNamed(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == ' ' || r == '-' })
	_, size, _ := strings.Cut(m.Key, "-")
	for _, w := range words {
		if number, ok := strings.CutSuffix(w, "GB"); ok && number != "" && w != strings.ToUpper(size) {
			return false
		}
	}
	joined := " " + strings.Join(words, " ") + " "
	return slices.ContainsFunc(m.Names, func(n string) bool {
		return strings.Contains(joined, " "+strings.ToUpper(n)+" ")
	})
}

func (m model) publishedChip(driver int) (gpu.Chip, error) {
	if !m.published() {
		return gpu.Chip{}, fmt.Errorf("%s: %w", m.Key, ErrUnpublished)
	}
	return m.chip(driver), nil
}

// ModelOf is the published chip of a GPU in an inventory, told by its name and
// memory. Driver is as in Model.
func ModelOf(g gpu.GPU, driver int) (gpu.Chip, error) {
	ms, err := models()
	if err != nil {
		return gpu.Chip{}, err
	}
	for _, m := range ms {
		if !m.is(g) {
			continue
		}
		if !m.published() {
			return gpu.Chip{}, fmt.Errorf("%s (%s): %w", g.UUID, g.Name, ErrUnpublished)
		}
		return ofEdition(m.chip(driver), g), nil
	}
	return gpu.Chip{}, fmt.Errorf("%s: no MIG layouts are published for %s with %s; plan on its node", g.UUID,
		g.Name, g.Memory)
}

func (m model) published() bool {
	for _, p := range m.Profiles {
		if p.ID == nil {
			return false
		}
	}
	return true
}

// is compares the words of the name and the memory: a GPU has a little more
// than the sum of its eighths.
func (m model) is(g gpu.GPU) bool {
	words := " " + strings.Join(strings.FieldsFunc(g.Name, func(r rune) bool { return r == ' ' || r == '-' }), " ") + " "
	named := slices.ContainsFunc(m.Names, func(n string) bool { return strings.Contains(words, " "+n+" ") })
	_, size, _ := strings.Cut(m.Key, "-")
	var gb gpu.MiB
	_, _ = fmt.Sscanf(size, "%dGB", &gb) // each key of the table has a size
	// Names are in GiB or GB, so they are up to 7 % apart from the memory.
	return named && g.Memory >= gb*1000*93/100 && g.Memory <= gb*1024*103/100
}

// of is the chip with what the inventory knows better.
func ofEdition(c gpu.Chip, g gpu.GPU) gpu.Chip {
	c.Memory, c.Capability = g.Memory, g.Capability
	if g.Multiprocessors == 0 || g.Multiprocessors == c.Multiprocessors {
		return c
	}
	// Another edition of the chip (H100 PCIe has 114 SMs, H20 78): its profiles have
	// other numbers of SMs, which are not published.
	c.Multiprocessors = g.Multiprocessors
	for i := range c.Profiles {
		c.Profiles[i].Multiprocessors = 0
	}
	return c
}

// Driver branches that brought MIG features (MIG User Guide).
const branch4gBeside3g = 510

func (m model) chip(driver int) gpu.Chip {
	c := gpu.Chip{Model: m.Key, Capability: m.Capability, Multiprocessors: orZero(m.Multiprocessors)}
	var three, four gpu.ProfileID
	for _, p := range m.Profiles {
		if driver != 0 && driver < p.MinDriver {
			continue
		}
		q := gpu.Profile{Name: p.Name, ID: orZero(p.ID), Slices: p.Slices, Starts: p.Starts, Size: p.Size, Max: p.Max,
			Multiprocessors: orZero(p.Multiprocessors), Memory: orZero(p.Memory),
			Engines: gpu.Engines{Decoders: p.Engines[0], Encoders: p.Engines[1], JPEG: p.Engines[2], OFA: p.Engines[3]}}
		switch q.Slices {
		case 3:
			three = q.ID
		case 4:
			four = q.ID
		}
		c.Profiles = append(c.Profiles, q)
	}
	if driver != 0 && driver < branch4gBeside3g && three != 0 {
		c.Apart = [][2]gpu.ProfileID{{three, four}}
	}
	return c
}

func orZero[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
