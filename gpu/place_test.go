package gpu

import (
	"fmt"
	"slices"
	"testing"
)

// TestPlaceID: HTCondor knows slots by these names, so they never change. The first is what
// Python's uuid module makes of the same SHA-1 digest, as a UUID of version 5.
func TestPlaceID(t *testing.T) {
	if got, want := PlaceID("GPU-00000001-0000-4000-8000-000000000000", "1g.5gb@4"), UUID("MIG-535e0c75-0135-5218-9051-7e43c9d83fb1"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[UUID]bool{}
	for _, profile := range []string{"1g.5gb", "2g.10gb"} {
		for start := range 7 {
			for _, u := range []UUID{"GPU-00000001-0000-4000-8000-000000000000", "GPU-00000002-0000-4000-8000-000000000000"} {
				id := PlaceID(u, fmt.Sprintf("%s@%d", profile, start))
				if seen[id] {
					t.Errorf("%s names two places", id)
				}
				seen[id] = true
			}
		}
	}
}

// TestNames: a device has the same names in an inventory and as an instance. One whose place was not read has its own.
func TestNames(t *testing.T) {
	const u, device = UUID("GPU-00000001-0000-4000-8000-000000000000"), UUID("MIG-00000002-0000-5000-8000-000000000000")
	start := 4
	place := PlaceID(u, "1g.5gb@4")
	g := MIGGPU{UUID: u, Chip: Chip{Profiles: []Profile{{ID: 9, Name: "1g.5gb"}}}}
	at := Place{Profile: 9, Start: start}
	for name, c := range map[string]struct{ got, want []UUID }{
		"read":      {MIGDevice{UUID: device, Profile: "1g.5gb", Start: &start}.Names(u), []UUID{device, place}},
		"not read":  {MIGDevice{UUID: device, Profile: "1g.5gb"}.Names(u), []UUID{device}},
		"instance":  {g.Names(Instance{Place: at, Compute: []ComputeInstance{{UUID: device}, {}}}), []UUID{place, device}},
		"no device": {g.Names(Instance{Place: at}), []UUID{place}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}
