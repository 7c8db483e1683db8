package mig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Want is a layout asked for: so many instances of each profile, wherever they
// fit best, and some at places of their own.
type Want struct {
	// Placed are at given starts.
	Placed gpu.Layout
	// Counts are of other instances, each profile at most once, ordered by id.
	Counts []Count
}

// Count is a number of instances of one profile.
type Count struct {
	Profile gpu.ProfileID
	N       int
}

// Total is the number of instances.
func (w Want) Total() int {
	n := len(w.Placed)
	for _, c := range w.Counts {
		n += c.N
	}
	return n
}

// maxWanted bounds what one text can ask for.
const maxWanted = 64

// ParseWant reads a layout as people write it: profiles by name or by the driver's
// id, joined by commas or blanks, with a count behind * and a start behind @:
// "3g.20gb, 1g.5gb*2, 1g.5gb@6". The word none asks for no instance.
func ParseWant(c gpu.Chip, text string) (Want, error) {
	words := wantWords(text)
	if len(words) == 0 {
		return Want{}, fmt.Errorf(`a MIG layout is empty; write profiles such as %q, or "none"`, example(c))
	}
	if len(words) == 1 && words[0] == "none" {
		return Want{}, nil
	}
	var placed []gpu.Place
	counts := map[gpu.ProfileID]int{}
	for _, word := range words {
		id, start, n, err := parseItem(c, word)
		if err != nil {
			return Want{}, err
		}
		if start >= 0 {
			placed = append(placed, gpu.Place{Profile: id, Start: start})
		} else {
			counts[id] += n
		}
		if len(placed)+total(counts) > maxWanted {
			return Want{}, fmt.Errorf("a MIG layout of more than %d instances; %s has %d compute slices", maxWanted, c.Model,
				c.Slices())
		}
	}
	return Want{gpu.NewLayout(placed...), sortedCounts(counts)}, nil
}

// CheckWant tells whether a text can be a layout on some chip at all, where none
// is known: as ParseWant reads it, but for what a chip's profiles are.
func CheckWant(text string) error {
	words := wantWords(text)
	if len(words) == 0 {
		return errors.New(`a MIG layout is empty; write profiles such as "3g.20gb, 1g.5gb*2", or "none"`)
	}
	if len(words) == 1 && words[0] == "none" {
		return nil
	}
	for _, word := range words {
		name, count, counted := strings.Cut(word, "*")
		name, at, placed := strings.Cut(name, "@")
		_, notID := smallNumber(name)
		_, notName := gpu.ParseProfileName(unlabel(name))
		n, notCount := smallNumber(count)
		_, notStart := smallNumber(at)
		if notID != nil && notName != nil || counted && (notCount != nil || n < 1) || placed && (notStart != nil || counted) {
			return fmt.Errorf("MIG layout: %q is not of the form 3g.20gb, 1g.5gb*2 or 3g.20gb@4", foreign.Clip(word))
		}
	}
	return nil
}

func wantWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

func total(counts map[gpu.ProfileID]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}

func sortedCounts(counts map[gpu.ProfileID]int) []Count {
	var cs []Count
	for id, n := range counts {
		cs = append(cs, Count{id, n})
	}
	slices.SortFunc(cs, func(a, b Count) int { return cmp.Compare(a.Profile, b.Profile) })
	return cs
}

// parseItem reads PROFILE[@START][*COUNT]; start is -1 where none is given.
func parseItem(c gpu.Chip, word string) (id gpu.ProfileID, start, n int, err error) {
	name, count, counted := strings.Cut(word, "*")
	name, at, placed := strings.Cut(name, "@")
	p, err := ProfileNamed(c, name)
	if err != nil {
		return 0, 0, 0, err
	}
	start, n = -1, 1
	if counted {
		if n, err = smallNumber(count); err != nil || n < 1 || placed {
			return 0, 0, 0, fmt.Errorf("MIG layout: %q: write a count as %s*2, and no start with it", foreign.Clip(word), p.Name)
		}
	}
	if placed {
		if start, err = smallNumber(at); err != nil || !slices.Contains(p.Starts, start) {
			return 0, 0, 0, fmt.Errorf("MIG layout: %q: %s can start at %s", foreign.Clip(word), p.Name, joinInts(p.Starts))
		}
	}
	return p.ID, start, n, nil
}

// smallNumber reads one or two digits.
func smallNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err == nil && len(s) > 2 {
		err = strconv.ErrRange
	}
	return int(n), err
}

// ProfileNamed finds a profile by its name, as nvidia-smi, mig-parted or a
// Kubernetes label ("1g.24gb.me") writes it, or by its id. Drivers round the
// memory differently (7g.79gb, 7g.80gb), so a neighbouring number will do where only one
// profile can be meant.
func ProfileNamed(c gpu.Chip, name string) (gpu.Profile, error) {
	if id, err := smallNumber(name); err == nil {
		if p, ok := c.Profile(gpu.ProfileID(id)); ok {
			return p, nil
		}
	}
	wanted, err := gpu.ParseProfileName(unlabel(name))
	if err != nil {
		return gpu.Profile{}, err
	}
	var near []gpu.Profile
	for _, p := range c.Profiles {
		have, err := gpu.ParseProfileName(p.Name)
		if err != nil || have.Slices != wanted.Slices || !slices.Equal(have.Attributes, wanted.Attributes) {
			continue
		}
		if have.GB == wanted.GB {
			return p, nil
		}
		if have.GB-wanted.GB == 1 || wanted.GB-have.GB == 1 {
			near = append(near, p)
		}
	}
	if len(near) == 1 {
		return near[0], nil
	}
	return gpu.Profile{}, fmt.Errorf("%s has no MIG profile %s; it has %s", c.Model, wanted, strings.Join(names(c), ", "))
}

// unlabel turns "1g.24gb.me" into "1g.24gb+me".
func unlabel(name string) string {
	if before, after, ok := strings.Cut(name, "gb."); ok {
		return before + "gb+" + after
	}
	return name
}

func names(c gpu.Chip) []string {
	names := make([]string, len(c.Profiles))
	for i, p := range c.Profiles {
		names[i] = p.Name
	}
	return names
}
func example(c gpu.Chip) string {
	if len(c.Profiles) == 0 {
		return "1g.10gb*2"
	}
	return c.Profiles[0].Name + "*2"
}

// FormatCounts prints a layout without its starts, as ParseWant reads it.
func FormatCounts(c gpu.Chip, l gpu.Layout) string {
	var w Want
	for _, p := range l {
		if last := len(w.Counts) - 1; last >= 0 && w.Counts[last].Profile == p.Profile {
			w.Counts[last].N++
			continue
		}
		w.Counts = append(w.Counts, Count{Profile: p.Profile, N: 1})
	}
	return FormatWant(c, w)
}

// FormatWant prints what ParseWant reads.
func FormatWant(c gpu.Chip, w Want) string {
	var words []string
	if len(w.Placed) > 0 || len(w.Counts) == 0 {
		words = append(words, c.Format(w.Placed))
	}
	for _, k := range w.Counts {
		word := strconv.Itoa(int(k.Profile))
		if p, ok := c.Profile(k.Profile); ok {
			word = p.Name
		}
		if k.N > 1 {
			word += "*" + strconv.Itoa(k.N)
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}
