package condor

import (
	"testing"
)

func TestExecutionPoint(t *testing.T) {
	for name, n := range examples() {
		t.Run(name, func(t *testing.T) {
			got, err := ExecutionPoint(n)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".conf", got)
			golden(t, name+".ad", InventoryAds(n))
			if ap, err := AccessPoint(PoolOf(n)); err == nil {
				golden(t, name+".ap.conf", ap)
			}
		})
	}
}
