package sim

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
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

// TestProfiles: NVML answers with the published numbers, in every version of
// the query, and with capacity that creation then finds.
func TestProfiles(t *testing.T) {
	needRoot(t)
	all, err := models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.Model, func(t *testing.T) {
			t.Parallel()
			New(t, "580.82.07", m.Model).do(t, "profiles", m.Model)
		})
	}
}

func compareProfiles(lib nvml.Interface, args []string) error {
	m, err := modelNamed(args[0])
	if err != nil {
		return err
	}
	d, err := oneGPU(lib)
	if err != nil {
		return err
	}
	var got []profile
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		p, err := readProfile(d, enum)
		if err != nil {
			return err
		}
		if p != nil {
			got = append(got, *p)
		}
	}
	want := slices.Clone(m.Profiles)
	slices.SortFunc(want, func(a, b profile) int { return a.Enum - b.Enum })
	for i, w := range want {
		if i < len(got) && w.SM == 0 {
			want[i].SM = got[i].SM
		}
		if i < len(got) && w.MiB == 0 {
			want[i].MiB = got[i].MiB
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("profiles (-table +NVML):\n%s", diff)
	}
	return nil
}

// readProfile asks one profile in all ways; nil: not on this GPU.
func readProfile(d nvml.Device, enum int) (*profile, error) {
	v1, ret := d.GetGpuInstanceProfileInfo(enum)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	v2, ret2 := d.GetGpuInstanceProfileInfoV(enum).V2()
	v3, ret3 := d.GetGpuInstanceProfileInfoV(enum).V3()
	at, ret4 := d.GetGpuInstancePossiblePlacements(&v1)
	free, ret5 := d.GetGpuInstanceRemainingCapacity(&v1)
	if err := errors.Join(ok("v1", ret), ok("v2", ret2), ok("v3", ret3), ok("placements", ret4), ok("capacity", ret5)); err != nil {
		return nil, fmt.Errorf("profile %d: %w", enum, err)
	}
	p := profile{ID: int(v1.Id), Enum: enum, Slices: int(v1.SliceCount), Max: int(v1.InstanceCount), SM: int(v1.MultiprocessorCount),
		MiB: int(v1.MemorySizeMB), Engines: [4]int{int(v1.DecoderCount), int(v1.EncoderCount), int(v1.JpegCount), int(v1.OfaCount)}}
	for _, a := range at {
		p.Starts, p.Size = append(p.Starts, int(a.Start)), int(a.Size)
	}
	p.Name = strings.TrimPrefix(text(v2.Name[:]), "MIG ")
	if name3 := text(v3.Name[:]); name3 != "MIG "+p.Name || v2.Id != v1.Id || v3.Id != v1.Id || v3.MemorySizeMB != v1.MemorySizeMB || v2.SliceCount != v1.SliceCount || v3.SliceCount != v1.SliceCount {
		return nil, fmt.Errorf("profile %d: v1 %+v, v2 %+v, v3 %+v differ", enum, v1, v2, v3)
	}
	if free != p.Max {
		return nil, fmt.Errorf("profile %s: %d free on an empty GPU, want %d", p.Name, free, p.Max)
	}
	return &p, nil
}

func text(s []int8) string {
	var b strings.Builder
	for _, c := range s {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// TestComputeInstanceProfiles: ids, names, counts and multiprocessors inside a
// GPU instance (MIG User Guide, -lcip listings). The double-memory instance of
// Hopper has a profile of its own with all multiprocessors (public GH200
// listing): a caller that takes profile 0 wastes ten of 26.
func TestComputeInstanceProfiles(t *testing.T) {
	needRoot(t)
	for _, c := range []struct{ model, id, want string }{
		{"A100-40", "9", "0 1c.3g.20gb x3 14, 1 2c.3g.20gb x1 28, 2 3g.20gb x1 42"},
		{"A100-40", "5", "0 1c.4g.20gb x4 14, 1 2c.4g.20gb x2 28, 3 4g.20gb x1 56"},
		{"A100-40", "0", "0 1c.7g.40gb x7 14, 1 2c.7g.40gb x3 28, 2 3c.7g.40gb x2 42, 3 4c.7g.40gb x1 56, 4 7g.40gb x1 98"},
		{"A100-40", "15", "0 1g.10gb x1 14"},
		{"H100-80", "15", "0 1c.1g.20gb x1 16, 7 1g.20gb x1 26"},
		{"H100-80", "9", "0 1c.3g.40gb x3 16, 1 2c.3g.40gb x1 32, 2 3g.40gb x1 60"},
		{"A30", "5", "0 1c.2g.12gb x2 14, 1 2g.12gb x1 28"},
	} {
		t.Run(c.model+"/"+c.id, func(t *testing.T) {
			if got := strings.TrimSpace(New(t, "550.163.01", c.model).do(t, "compute", c.id)); got != c.want {
				t.Errorf("compute instance profiles:\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func listComputeProfiles(lib nvml.Interface, args []string) error {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	d, err := oneGPU(lib)
	if err != nil {
		return err
	}
	gi, ret := d.CreateGpuInstance(info(uint32(id)))
	if ret != nvml.SUCCESS {
		return ret
	}
	var lines []string
	for p := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		v1, ret := gi.GetComputeInstanceProfileInfo(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		v2, ret2 := gi.GetComputeInstanceProfileInfoV(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED).V2()
		free, retFree := gi.GetComputeInstanceRemainingCapacity(&v1)
		places, retPlaces := gi.GetComputeInstancePossiblePlacements(&v1)
		err = errors.Join(err, ok("v1", ret), ok("v2", ret2), ok("capacity", retFree), ok("placements", retPlaces))
		if v2.Id != v1.Id || free != int(v1.InstanceCount) || len(places) != free {
			err = errors.Join(err, fmt.Errorf("profile %d: %+v, %+v, %d free, places %v", p, v1, v2, free, places))
		}
		lines = append(lines, fmt.Sprintf("%d %s x%d %d", v1.Id, strings.TrimPrefix(text(v2.Name[:]), "MIG "), v1.InstanceCount, v1.MultiprocessorCount))
	}
	return errors.Join(err, say(strings.Join(lines, ", ")))
}
