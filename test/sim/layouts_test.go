package sim

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// profileTable is what is published of the models: MIG User Guide and public
// nvidia-smi listings. 0 in sm or mib: not published. The counts (all layouts,
// maximal ones) come from two enumerators that are not of this repository.
//
//go:embed testdata/profiles.json
var profileTable []byte

type model struct {
	Model               string
	Units, Slices       int
	Engines             [4]int // DEC, ENC, JPEG, OFA
	All, Plain, Classic [2]int
	Profiles            []profile
}

type profile struct {
	Name                                 string
	ID, Enum, Slices, Size, Max, SM, MiB int
	Starts                               []int
	Engines                              [4]int
}

func models() ([]model, error) {
	var m []model
	err := json.Unmarshal(profileTable, &m)
	return m, err
}

func modelNamed(name string) (model, error) {
	all, err := models()
	for _, m := range all {
		if m.Model == name {
			return m, err
		}
	}
	return model{}, errors.Join(err, fmt.Errorf("no model %s", name))
}

// chosen are the profiles of a set: classic has no suffix and no double memory.
func (m model) chosen(set string) []profile {
	var ps []profile
	for _, p := range m.Profiles {
		suffix := strings.ContainsAny(p.Name, "+-")
		double := p.Enum == nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2
		if set == "all" || !suffix && (set == "plain" || !double) {
			ps = append(ps, p)
		}
	}
	return ps
}

// placed is an instance: profile and start.
type placed struct{ id, start int }

func spell(layout []placed) string {
	words := make([]string, len(layout))
	for i, p := range layout {
		words[i] = fmt.Sprintf("%d@%d", p.id, p.start)
	}
	sort.Strings(words)
	return strings.Join(words, " ")
}

func places(ps []profile) (all []placed) {
	for _, p := range ps {
		for _, s := range p.Starts {
			all = append(all, placed{p.ID, s})
		}
	}
	return all
}

// legal is the rules of the MIG User Guide over the table: no overlap, count,
// slices, engines.
func (m model) legal(layout []placed) bool {
	byID := map[int]profile{}
	for _, p := range m.Profiles {
		byID[p.ID] = p
	}
	var units uint
	count, slices := map[int]int{}, 0
	var engines [4]int
	for _, l := range layout {
		p := byID[l.id]
		mask := (uint(1)<<p.Size - 1) << l.start
		if count[l.id]++; units&mask != 0 || count[l.id] > p.Max {
			return false
		}
		units |= mask
		slices += p.Slices
		for i := range engines {
			engines[i] += p.Engines[i]
		}
	}
	for i := range engines {
		if engines[i] > m.Engines[i] {
			return false
		}
	}
	return slices <= m.Slices
}

// walk visits every layout once: the places in a fixed order, each put or not.
// put says whether the place can be added to what is there, take takes it out.
func walk(all []placed, put func(placed) bool, take func(placed), visit func([]placed)) {
	var layout []placed
	var next func(from int)
	next = func(from int) {
		visit(layout)
		for i := from; i < len(all); i++ {
			if put(all[i]) {
				layout = append(layout, all[i])
				next(i + 1)
				layout = layout[:len(layout)-1]
				take(all[i])
			}
		}
	}
	next(0)
}

// fromTable are the layouts of a set by the rules, spelled and sorted.
func (m model) fromTable(set string) []string {
	var found []string
	var now []placed
	walk(places(m.chosen(set)), func(p placed) bool {
		if !m.legal(append(now[:len(now):len(now)], p)) {
			return false
		}
		now = append(now, p)
		return true
	}, func(placed) { now = now[:len(now)-1] }, func(l []placed) { found = append(found, spell(l)) })
	sort.Strings(found)
	return found
}

// maximal counts the layouts to which nothing can be added.
func maximal(layouts []string, all []placed) int {
	known := map[string]bool{}
	for _, l := range layouts {
		known[l] = true
	}
	n := 0
	for _, l := range layouts {
		words := strings.Fields(l)
		if !slices.ContainsFunc(all, func(p placed) bool {
			more := append(words[:len(words):len(words)], fmt.Sprintf("%d@%d", p.id, p.start))
			sort.Strings(more)
			return known[strings.Join(more, " ")]
		}) {
			n++
		}
	}
	return n
}

// TestLayouts: the layouts that can be created on the simulated library are
// those of the published table, for every model; all profiles together where
// the grid differs.
func TestLayouts(t *testing.T) {
	needRoot(t)
	all, err := models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		sets := map[string][2]int{"classic": m.Classic}
		if m.Model == "A30" || m.Model == "A100-40" || m.Model == "RTXPRO6000" {
			sets["all"] = m.All
		}
		for set, want := range sets {
			t.Run(m.Model+"/"+set, func(t *testing.T) {
				t.Parallel()
				n := New(t, "580.82.07", m.Model)
				got := strings.Split(strings.TrimSuffix(n.do(t, "layouts", m.Model, set), "\n"), "\n")
				sort.Strings(got)
				if d := cmp.Diff(m.fromTable(set), got); d != "" {
					t.Errorf("layouts by rule and by creation differ (-rule +created):\n%s", d)
				}
				if counts := [2]int{len(got), maximal(got, places(m.chosen(set)))}; counts != want {
					t.Errorf("layouts, maximal layouts: %v, want %v", counts, want)
				}
			})
		}
	}
}

// walkLayouts creates every layout and prints it.
func walkLayouts(lib nvml.Interface, args []string) error {
	m, err := modelNamed(args[0])
	if err != nil {
		return err
	}
	d, err := oneGPU(lib)
	if err != nil {
		return err
	}
	live := map[placed]nvml.GpuInstance{}
	var wrong error
	walk(places(m.chosen(args[1])), func(p placed) bool {
		at := &nvml.GpuInstancePlacement{Start: uint32(p.start), Size: uint32(m.size(p.id))}
		gi, ret := d.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(p.id)}, at)
		if ret != nvml.SUCCESS && ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
			wrong = errors.Join(wrong, fmt.Errorf("create %v: %w", p, ret))
		}
		live[p] = gi
		return ret == nvml.SUCCESS
	}, func(p placed) {
		wrong = errors.Join(wrong, ok("destroy", live[p].Destroy()))
	}, func(l []placed) { wrong = errors.Join(wrong, say(spell(l))) })
	return wrong
}

func (m model) size(id int) int {
	i := slices.IndexFunc(m.Profiles, func(p profile) bool { return p.ID == id })
	return m.Profiles[i].Size
}
