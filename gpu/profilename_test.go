package gpu

import (
	"reflect"
	"strings"
	"testing"
)

// profileNames are the MIG profiles of all chips from A30 to B300 and RTX PRO
// 6000: NVIDIA's MIG User Guide (Supported MIG Profiles) and public
// nvidia-smi mig -lgip listings.
const profileNames = `
	1g.10gb 1g.10gb+me 1g.12gb 1g.12gb+gfx 1g.12gb+me 1g.12gb-me 1g.18gb 1g.18gb+me 1g.20gb
	1g.23gb 1g.23gb+me 1g.24gb 1g.24gb+gfx 1g.24gb+me 1g.24gb+me.all 1g.24gb-me 1g.34gb
	1g.34gb+me 1g.35gb 1g.35gb+me 1g.36gb 1g.45gb 1g.47gb 1g.5gb 1g.5gb+me 1g.67gb 1g.6gb
	1g.6gb+me 1g.70gb
	2g.10gb 2g.12gb 2g.12gb+me 2g.20gb 2g.24gb 2g.24gb-me 2g.35gb 2g.36gb 2g.45gb 2g.47gb
	2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 2g.67gb 2g.70gb
	3g.135gb 3g.139gb 3g.20gb 3g.40gb 3g.47gb 3g.48gb 3g.71gb 3g.72gb 3g.90gb 3g.93gb
	4g.135gb 4g.139gb 4g.20gb 4g.24gb 4g.40gb 4g.47gb 4g.48gb 4g.48gb+gfx 4g.71gb 4g.72gb
	4g.90gb 4g.93gb 4g.96gb 4g.96gb+gfx
	7g.141gb 7g.144gb 7g.180gb 7g.186gb 7g.269gb 7g.278gb 7g.40gb 7g.80gb 7g.94gb 7g.96gb
`

func TestProfileNames(t *testing.T) {
	for _, name := range strings.Fields(profileNames) {
		for _, text := range []string{name, "MIG " + name} {
			p, err := ParseProfileName(text)
			if err != nil {
				t.Errorf("ParseProfile(%q): %v", text, err)
			} else if p.String() != name {
				t.Errorf("ParseProfile(%q) prints %q", text, p)
			}
		}
	}
}

func TestParseProfile(t *testing.T) {
	for text, want := range map[string]ProfileName{
		"1g.5gb":            {Slices: 1, GB: 5},
		"7g.269gb":          {Slices: 7, GB: 269},
		"1g.10gb+me":        {Slices: 1, GB: 10, Attributes: []string{"me"}},
		"1g.24gb-me":        {Slices: 1, GB: 24, Attributes: []string{"-me"}},
		"1g.24gb+me.all":    {Slices: 1, GB: 24, Attributes: []string{"me.all"}},
		"MIG 4g.96gb+gfx":   {Slices: 4, GB: 96, Attributes: []string{"gfx"}},
		"1g.24gb+gfx-me":    {Slices: 1, GB: 24, Attributes: []string{"gfx", "-me"}},
		"1g.24gb+gfx,me":    {Slices: 1, GB: 24, Attributes: []string{"gfx", "me"}}, // mig-parted
		"1g.24gb-gfx,me":    {Slices: 1, GB: 24, Attributes: []string{"-gfx", "-me"}},
		"1g.24gb+me+me.all": {Slices: 1, GB: 24, Attributes: []string{"me", "me.all"}},
	} {
		if got, err := ParseProfileName(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseProfile(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseProfileRefuses(t *testing.T) {
	for _, text := range []string{
		"", "MIG ", "1g", "1g.", "1g.gb", "g.5gb", "0g.5gb", "1g.0gb", "01g.5gb", "1g.05gb", "100g.5gb", "1g.12345gb",
		"1g.5GB", "1G.5gb", "1g.5gb ", " 1g.5gb", "1g.5gb+", "1g.5gb+me.", "1g.5gb+ME", "1g.5gb,me", "1g.5gb+me,", "1g.5gb++me",
		"1c.2g.10gb", // a compute instance's profile, which this is not
		"MIG MIG 1g.5gb", "1g.5gb\n", "-1g.5gb", "1g.5gb+me;reboot",
	} {
		if got, err := ParseProfileName(text); err == nil {
			t.Errorf("ParseProfile(%q) = %v; want an error", text, got)
		}
	}
}

// FuzzParseProfile: what is accepted prints a name that means the same.
func FuzzParseProfile(f *testing.F) {
	for _, name := range append(strings.Fields(profileNames), "MIG 1g.10gb", "1g.24gb-gfx,me", "1c.2g.10gb", "") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProfileName(text)
		if err != nil {
			return
		}
		if p.Slices < 1 || p.GB < 1 {
			t.Errorf("ParseProfile(%q) = %+v", text, p)
		}
		again, err := ParseProfileName(p.String())
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("ParseProfile(%q) prints %q, which reads as %+v, %v", text, p, again, err)
		}
		if !strings.ContainsRune(text, ',') && p.String() != strings.TrimPrefix(text, "MIG ") {
			t.Errorf("ParseProfile(%q) prints %q", text, p)
		}
	})
}
