package plan

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestPlaceID: HTCondor knows slots by these names, so they never change. The first is what
// Python's uuid module makes of the same SHA-1 digest, as a UUID of version 5.
func TestPlaceID(t *testing.T) {
	one := place{gpu.Profile{Name: "1g.5gb"}, 4}
	if got, want := one.id("GPU-00000001-0000-4000-8000-000000000000"), gpu.UUID("MIG-535e0c75-0135-5218-9051-7e43c9d83fb1"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[gpu.UUID]bool{}
	for _, profile := range []string{"1g.5gb", "2g.10gb"} {
		for start := range 7 {
			for _, u := range []gpu.UUID{"GPU-00000001-0000-4000-8000-000000000000", "GPU-00000002-0000-4000-8000-000000000000"} {
				id := place{gpu.Profile{Name: profile}, start}.id(u)
				if seen[id] {
					t.Errorf("%s names two places", id)
				}
				seen[id] = true
			}
		}
	}
}
