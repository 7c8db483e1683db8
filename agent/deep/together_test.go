package deep

import (
	"testing"

	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: looks of one key and of others begin and end at one time, and so do those for the list of daemons.
func TestTogether(t *testing.T) {
	look := func(key string) func() {
		return func() { Begin(key, func() int { return 1 }).Within(Patient) }
	}
	together.Calls(look("together 1"), look("together 1"), look("together 2"), look("together 3"))
	together.Methods(t, &List{}, uint64(0), func() ([]string, error) { return nil, nil })
}
