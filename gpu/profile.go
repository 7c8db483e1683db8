package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Profile is the name of a MIG profile, such as "1g.10gb+me". The id that
// NVML's calls want depends on the chip and is not part of the name.
type Profile struct {
	// Slices is the number of compute slices of the GPU instance.
	Slices int
	// GB is the memory size in NVIDIA's naming; it is rounded and differs by
	// driver, so it is not an amount to compute with.
	GB int
	// Attributes are the media and graphics extensions, such as "me",
	// "me.all", "gfx"; a leading minus means without them ("-me").
	Attributes []string
}

var profileName = regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb((?:[+-][a-z]+(?:\.[a-z]+)*(?:,[a-z]+)*)*)$`)

// ParseProfile reads a profile's name as nvidia-smi prints it, with or without
// the leading "MIG ".
func ParseProfile(s string) (Profile, error) {
	m := profileName.FindStringSubmatch(strings.TrimPrefix(s, "MIG "))
	if m == nil {
		return Profile{}, fmt.Errorf("MIG profile %q is not of the form 1g.10gb or 1g.10gb+me", clip(s))
	}
	slices, _ := strconv.Atoi(m[1]) // both are bounded by the pattern
	gb, _ := strconv.Atoi(m[2])
	p := Profile{Slices: slices, GB: gb}
	for attrs := m[3]; attrs != ""; {
		end := strings.IndexAny(attrs[1:], "+-") + 1
		if end == 0 {
			end = len(attrs)
		}
		p.addAttributes(attrs[0] == '-', attrs[1:end])
		attrs = attrs[end:]
	}
	return p, nil
}

// addAttributes takes a list apart that mig-parted joins with commas.
func (p *Profile) addAttributes(without bool, list string) {
	for _, a := range strings.Split(list, ",") {
		if without {
			a = "-" + a
		}
		p.Attributes = append(p.Attributes, a)
	}
}

// String prints the name as nvidia-smi does, without "MIG ".
func (p Profile) String() string {
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
