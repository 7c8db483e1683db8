package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ProfileName is the name of a MIG profile, such as "1g.10gb+me". The id that
// NVML's calls want depends on the chip and is not part of the name.
type ProfileName struct {
	// Slices is the number of compute slices of the GPU instance.
	Slices int
	// GB is the memory size in NVIDIA's naming; it is rounded and differs by
	// driver, so it is not an amount to compute with.
	GB int
	// Attributes are the media and graphics extensions, such as "me",
	// "me.all", "gfx"; a leading minus means without them ("-me").
	Attributes []string
}

// ParseProfileName reads a profile's name as nvidia-smi prints it, with or without
// the leading "MIG ".
func ParseProfileName(s string) (ProfileName, error) {
	slices, rest, okSlices := cutNumber(strings.TrimPrefix(s, "MIG "), 2, "g.")
	gb, attrs, okGB := cutNumber(rest, 4, "gb")
	p := ProfileName{Slices: slices, GB: gb}
	if !okSlices || !okGB || !p.addAll(attrs) {
		return ProfileName{}, fmt.Errorf("MIG profile %q is not of the form 1g.10gb or 1g.10gb+me", foreign.Clip(s))
	}
	return p, nil
}

// cutNumber cuts a positive number of at most so many digits, without leading
// zeros, and the unit behind it.
func cutNumber(s string, digits int, unit string) (n int, rest string, ok bool) {
	number, rest, ok := strings.Cut(s, unit)
	if !ok || len(number) == 0 || len(number) > digits || number[0] == '0' || !all(number, isDigit) {
		return 0, s, false
	}
	n, err := strconv.Atoi(number)
	return n, rest, err == nil
}

// addAll reads "+me,gfx-me.all" to its end.
func (p *ProfileName) addAll(attrs string) bool {
	for attrs != "" {
		end := strings.IndexAny(attrs[1:], "+-") + 1
		if end == 0 {
			end = len(attrs)
		}
		if sign := attrs[0]; sign != '+' && sign != '-' || !isAttributes(attrs[1:end]) {
			return false
		}
		p.addAttributes(attrs[0] == '-', attrs[1:end])
		attrs = attrs[end:]
	}
	return true
}

// isAttributes: words of small letters, joined by commas; each word's parts by dots.
func isAttributes(list string) bool {
	for _, attribute := range strings.Split(list, ",") {
		for _, word := range strings.Split(attribute, ".") {
			if word == "" || !all(word, isLower) {
				return false
			}
		}
	}
	return true
}

// addAttributes takes a list apart that mig-parted joins with commas.
func (p *ProfileName) addAttributes(without bool, list string) {
	for _, a := range strings.Split(list, ",") {
		if without {
			a = "-" + a
		}
		p.Attributes = append(p.Attributes, a)
	}
}

// String prints the name as nvidia-smi does, without "MIG ".
func (p ProfileName) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%dg.%dgb", p.Slices, p.GB)
	for _, a := range p.Attributes {
		if !strings.HasPrefix(a, "-") {
			b.WriteByte('+')
		}
		b.WriteString(a)
	}
	return b.String()
}
