package verify

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu/cuda"
)

// TestVersionOfCUDA: the client's word; empty where it did not come so far.
func TestVersionOfCUDA(t *testing.T) {
	for v, want := range map[int]string{0: "", 12040: "12.4", 13010: "13.1", 11080: "11.8"} {
		r := cuda.Report{}
		if v > 0 {
			r.CUDA = &v
		}
		at := time.Unix(1000, 0)
		if got := (attempt{report: r}).verdict(at); got.CUDA != want || !got.At.Equal(at) {
			t.Errorf("%d: %q, want %q", v, got.CUDA, want)
		}
	}
}
