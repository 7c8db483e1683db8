//go:build cgo

package nvml

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// FuzzNames: what names and versions of the driver tell.
func FuzzNames(f *testing.F) {
	f.Add("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "535.54.03")
	f.Add("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "535.43")
	f.Add(" MIG  MIG 1g.5gb+me", "535.-43")
	f.Fuzz(func(t *testing.T, name, driver string) {
		if p := profileIn(name); p != "" {
			if again, err := gpu.ParseProfileName(p); err != nil || again.String() != p || !strings.Contains(name, " MIG ") {
				t.Errorf("%q from %q: %v", p, name, err)
			}
		}
		if brokenProcessStruct(driver) && !strings.HasPrefix(driver, "535.") {
			t.Errorf("driver %q is taken for one of 535", driver)
		}
	})
}
