package plan_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestPublishedProfilesAreThoseOfCaptures holds what is published of MIG profiles to what
// real GPUs reported of their MIG devices.
func TestPublishedProfilesAreThoseOfCaptures(t *testing.T) {
	seen := 0
	for name, c := range captures(t) {
		chip, err := mig.ModelOf(gpu.GPU{Name: c.Name, Memory: c.Memory, Capability: c.Capability}, 590)
		if len(c.Devices) == 0 {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, d := range c.Devices {
			profile := d.Profile
			_, whole, part := strings.Cut(profile, "c.") // "1c.3g.71gb" is a part of one
			if part {
				profile = whole
			}
			for _, p := range chip.Profiles {
				if p.Name != profile {
					continue
				}
				seen++
				if p.Memory != d.Memory || !part && p.Multiprocessors != d.Multiprocessors {
					t.Errorf("%s: %s is published with %s and %d SMs, its device has %s and %d", name, d.Profile, p.Memory, p.Multiprocessors, d.Memory, d.Multiprocessors)
				}
			}
		}
	}
	if seen != 9 {
		t.Errorf("%d devices compared, want 9", seen)
	}
}
