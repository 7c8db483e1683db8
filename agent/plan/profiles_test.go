package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

// A profile's slot is what each of its places has, in HTCondor's steps of memory.
func TestProfilesAreTheLeast(t *testing.T) {
	place := func(parent gpu.UUID, profile string, pool gpu.MiB, cpus int, memory gpu.MiB) GPU {
		return GPU{Parent: parent, Profile: profile, Place: profile + "@0", Pool: pool, Resources: Resources{cpus, memory}}
	}
	p := Plan{MIG: []MIGGPU{{UUID: "a"}, {UUID: "b"}, {UUID: "c"}}, GPUs: []GPU{
		place("a", "3g", 20000, 7, 30000), place("a", "1g", 5000, 3, 10100), place("b", "3g", 20000, 6, 30100), place("c", "1g", 5000, 1, 100),
		{Parent: "a", Profile: "2g", Pool: 10000}, {UUID: "d", Pool: 40000},
	}}
	got := p.Profiles(func(m MIGGPU) bool { return m.UUID != "c" })
	if len(got) != 2 || got[0].Profile != "1g" || got[0].Resources != (Resources{3, 9984}) || got[1].Resources != (Resources{6, 29952}) {
		t.Errorf("%+v", got)
	}
}

// TestBelow: jobs below the largest profile that is waited for leave a device to it.
func TestBelow(t *testing.T) {
	profiles := []GPU{{Profile: "1g"}, {Profile: "2g"}, {Profile: "3g"}}
	for _, c := range []struct{ device, waited, want string }{
		{"3g", "3g", "2g"}, {"3g", "2g", "1g"}, {"3g", "2g 3g", "2g"}, {"3g", "1g", ""}, {"3g", "", ""},
		{"2g", "3g", ""}, {"2g", "2g", "1g"}, {"1g", "1g 2g 3g", ""}, {"7g", "3g", ""},
	} {
		below, ok := Below(profiles, c.device, func(p string) bool { return slices.Contains(strings.Fields(c.waited), p) })
		if below.Profile != c.want || ok != (c.want != "") {
			t.Errorf("of a %s, while %q are waited for: %q, %t; want %q", c.device, c.waited, below.Profile, ok, c.want)
		}
	}
}

// Whoever waits is let onto the smallest profile that holds it, and who is kept off
// a device has a smaller profile, whatever the profiles are.
func TestBelowAgreesWithTheSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ps []GPU
		host := rapid.IntRange(0, 5)
		for i := range rapid.IntRange(1, 6).Draw(t, "profiles") {
			ps = append(ps, GPU{Profile: fmt.Sprint(i), Pool: gpu.MiB(i/2 + 1), Resources: Resources{host.Draw(t, "cpus"), gpu.MiB(host.Draw(t, "memory"))}})
		}
		vram, asks := gpu.MiB(host.Draw(t, "vram")), Resources{host.Draw(t, "asked"), gpu.MiB(host.Draw(t, "asked memory"))}
		others := rapid.SliceOfDistinct(rapid.IntRange(0, 5), func(i int) int { return i }).Draw(t, "others")
		smallest := slices.IndexFunc(ps, func(p GPU) bool { return p.Holds(vram, asks) })
		for i, p := range ps {
			waited := func(profile string) bool {
				return smallest >= 0 && profile == ps[smallest].Profile || slices.ContainsFunc(others, func(o int) bool { return profile == fmt.Sprint(o) })
			}
			below, ok := Below(ps, p.Profile, waited)
			kept := ok && below.Holds(vram, asks)
			if i == smallest && kept {
				t.Fatalf("%v of %v is kept off %v by %v", asks, vram, p, below)
			}
			if kept && (smallest < 0 || smallest >= i) {
				t.Fatalf("%v of %v is kept off %v, and nothing smaller holds it", asks, vram, p)
			}
		}
	})
}
