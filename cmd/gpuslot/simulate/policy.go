package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Policy is how the pool's GPUs are given to jobs.
type Policy struct {
	// Name stands in tables.
	Name string
	// Config is the text of a gpuslot.toml that holds for all nodes; empty leaves
	// each group its own.
	Config string
	// Note is a sentence on where it comes from, for the reader of results; empty for none.
	Note string
	// Slicing: GPUs that the plan shares are shared without a control daemon, in time slices.
	Slicing bool
}

// The names of the policies of this package.
const (
	nameExclusive = "exclusive"
	nameSlicing   = "time-slicing"
	nameMPS       = "mps"
	nameStatic    = "static-mig"
	nameDynamic   = "dynamic-mig"
	nameMixed     = "mixed"
)

// Exclusive gives each job whole GPUs.
func Exclusive() Policy {
	return Policy{Name: nameExclusive, Config: "[sharing]\nmode = \"whole\"\n"}
}

// TimeSlicing shares GPUs by so many jobs at most without MPS, 0 for as many as the
// plan chooses. HTCondor counts VRAM. That before driver 615 nothing enforces it changes no time, so
// GPUs with any driver have this policy, and not only those with mode = "time-slice".
func TimeSlicing(shares int) Policy {
	return Policy{Name: nameSlicing, Config: mpsConfig(shares), Slicing: true}
}

// MPS shares GPUs by so many jobs at most through control daemons, each with a pool
// of VRAM; 0 for as many as the plan chooses.
func MPS(shares int) Policy { return Policy{Name: nameMPS, Config: mpsConfig(shares)} }

func mpsConfig(shares int) string {
	text := "[sharing]\nmode = \"mps\"\n"
	if shares > 0 {
		text += fmt.Sprintf("shares = %d\n", shares)
	}
	return text
}

// Mixed leaves each group of nodes its own configuration.
func Mixed() Policy { return Policy{Name: nameMixed} }

// StaticMIG divides the GPUs that have MIG, each by the layout of its product's name;
// the smallest instances where layouts has none. Other GPUs are whole.
func StaticMIG(pool Pool, layouts map[string]string) (Policy, error) {
	text, err := migConfig(pool, func(chip gpu.Chip, name string) []string {
		if l, ok := layouts[name]; ok {
			return []string{l}
		}
		return []string{smallest(chip)}
	})
	return Policy{Name: nameStatic, Config: text}, err
}

// DynamicMIG lets the layouts of GPUs that have MIG follow the work that waits
// (repartition = "auto"). Other GPUs are whole.
func DynamicMIG(pool Pool) (Policy, error) {
	text, err := migConfig(pool, func(chip gpu.Chip, _ string) []string { return ladder(chip) })
	return Policy{Name: nameDynamic, Config: "[sharing]\nrepartition = \"auto\"\n" + text}, err
}

// migConfig writes a table for each model of the pool.
func migConfig(pool Pool, layouts func(gpu.Chip, string) []string) (string, error) {
	var b strings.Builder
	var seen []string
	for _, g := range pool.Groups {
		for _, one := range g.Inventory.GPUs {
			if slices.Contains(seen, one.Name) {
				continue
			}
			seen = append(seen, one.Name)
			text, err := modelTable(one, layouts)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		}
	}
	return b.String(), nil
}

func modelTable(one gpu.GPU, layouts func(gpu.Chip, string) []string) (string, error) {
	if !one.MIGCapable {
		return fmt.Sprintf("[model.%q]\nmode = \"whole\"\n", one.Name), nil
	}
	chip, err := mig.ModelOf(one, 0)
	if err != nil {
		return "", err
	}
	var quoted []string
	for _, l := range layouts(chip, one.Name) {
		quoted = append(quoted, fmt.Sprintf("%q", l))
	}
	return fmt.Sprintf("[model.%q]\nmode = \"mig\"\nmig_layout = [%s]\n", one.Name, strings.Join(quoted, ", ")), nil
}

// plain are the profiles without media engines of their own and with no more memory than
// their slices' part, the largest first. Those whose memory is not published are
// left out: no slot can be made for them ahead.
func plain(chip gpu.Chip) []gpu.Profile {
	var out []gpu.Profile
	for _, p := range chip.Profiles {
		if strings.ContainsAny(p.Name, "+-") || p.Memory < 1 {
			continue
		}
		i := slices.IndexFunc(out, func(o gpu.Profile) bool { return o.Slices == p.Slices })
		switch {
		case i < 0:
			out = append(out, p)
		case p.Size < out[i].Size:
			out[i] = p
		}
	}
	slices.SortFunc(out, func(a, b gpu.Profile) int { return b.Slices - a.Slices })
	return out
}

// smallest is as many of the smallest instances as there can be.
func smallest(chip gpu.Chip) string {
	ps := plain(chip)
	last := ps[len(ps)-1]
	return fmt.Sprintf("%s*%d", last.Name, last.Max)
}

// ladder has a layout for each profile, as many of it as there can be, and the
// layout of 4g and 3g where the chip has one; the smallest instances first.
func ladder(chip gpu.Chip) []string {
	ps := plain(chip)
	var out []string
	for _, p := range slices.Backward(ps) {
		text := fmt.Sprintf("%s*%d", p.Name, p.Max)
		if i := slices.IndexFunc(ps, func(o gpu.Profile) bool { return p.Slices*p.Max+o.Slices == chip.Slices() }); i >= 0 &&
			p.Max*p.Size+ps[i].Size <= chip.Units() {
			text += fmt.Sprintf(",%s*1", ps[i].Name)
		}
		out = append(out, text)
	}
	return out
}
