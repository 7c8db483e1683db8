// Package published is the one table of what others measured on shared GPUs, each number
// with its source. Its test holds gpuslot advise, simulate and bench's model to all of it,
// and the report of test/gpu shows it beside what was measured here. Start at Results.
package published

import "fmt"

// Use says what a result is to the tools.
type Use string

// Fitted: a constant or an input follows from it. Predicted: nothing does, so that it can
// refute the tools. Open: the source does not say enough of the jobs to compare it.
const (
	Fitted    Use = "fitted"
	Predicted Use = "predicted"
	Open      Use = "open"
)

// Result is one published number.
type Result struct {
	// Key is its name in tests and lists of misses.
	Key string
	// Source is the paper and the table or figure in it; What says what was measured.
	Source, What string
	// Low and High are what the source prints; they differ where it prints a range, or no
	// exact number, and are 0 where no number is at hand.
	Low, High float64
	// Doubt is the part by which the source says that it may be off.
	Doubt float64
	Use   Use
	// Note is why a result is open, or how its number follows from those printed.
	Note string
}

// Printed is the number as text.
func (r Result) Printed() string {
	switch {
	case r.High == 0:
		return "no number"
	case r.Low == r.High:
		return fmt.Sprintf("%.4g", r.Low)
	}
	return fmt.Sprintf("%.4g to %.4g", r.Low, r.High)
}

// Within reports whether an interval holds the number: any of the range that the source
// prints, with its doubt and the rounding of four digits.
func (r Result) Within(low, high float64) bool {
	const rounding = 5e-4
	return r.High*(1+r.Doubt+rounding) >= low && r.Low*(1-r.Doubt-rounding) <= high
}

// The sources.
const (
	KIT      = "KIT, arXiv 2505.08562"
	CERN     = "CERN 2023"
	MIGPerf  = "MIGPerf, arXiv 2301.00407"
	Dynamic  = "arXiv 2508.18556"
	Spatial  = "arXiv 2604.22430"
	NJIT     = "NJIT, Wulver's documentation"
	CERNPage = "Efficient access to shared GPU resources, part 5, kubernetes.web.cern.ch, 2023-07-04"
	NJITPage = "arcs-njit-edu.github.io/Docs/MIG/performance_testing"
)

// KITMode is a column of KIT's Table 1: one training on eight A100, metered at the whole
// machine, whose power tools are off by up to KITDoubt.
type KITMode struct {
	Name      string
	Instances int
	// Minutes is the mean run time, Watts the machine's power, KJ the energy of a training.
	Minutes, Watts, KJ float64
	// EpochsPerSecond is Table 2's: 414 trainings in HTCondor; 0 was not measured.
	EpochsPerSecond float64
}

// KITDoubt is the systematic uncertainty of KIT's power measurements.
const KITDoubt = 0.05

// KITModes are KIT's Tables 1 and 2.
func KITModes() []KITMode {
	return []KITMode{
		{"CPU only", 64, 82.07, 664.80, 51.95, 0},
		{"exclusive", 8, 10.56, 748.22, 59.25, 1.94},
		{"simple sharing", 96, 41.43, 1202.58, 31.15, 10.06},
		{"MPS", 96, 16.23, 1396.29, 14.17, 18.16},
		{"MIG", 56, 9.41, 1327.55, 13.39, 14.14},
	}
}

// Partitions are the MIG profiles of CERN's tables, by their compute slices.
func Partitions() []string { return []string{"7g", "3g", "2g", "1g"} }

// CERNFlops is a row of CERN's FLOPS on one A100-40GB, in TFLOPS: without MIG and on
// Partitions.
type CERNFlops struct {
	Format string
	Off    float64
	On     [4]float64
}

// CERNAll are CERN's FLOPS.
func CERNAll() []CERNFlops {
	return []CERNFlops{
		{"fp16 on CUDA cores", 32.785, [4]float64{30.583, 13.714, 9.135, 4.348}},
		{"fp32 on CUDA cores", 16.773, [4]float64{15.312, 6.682, 4.418, 2.132}},
		{"fp64 on CUDA cores", 8.128, [4]float64{7.386, 3.332, 2.206, 1.056}},
		{"fp16 on tensor cores", 164.373, [4]float64{151.701, 94.197, 65.968, 30.108}},
	}
}

// cernTimes are CERN's run times in seconds, without MIG and on the full 7g profile.
func cernTimes() []struct {
	work    string
	off, on float64
} {
	return []struct {
		work    string
		off, on float64
	}{
		{"simulation of 5 million particles", 26.365, 28.732},
		{"simulation of 10 million particles", 51.135, 55.930},
		{"simulation of 15 million particles", 76.374, 83.184},
		{"training with 2,000 samples", 63.30, 65.77},
		{"training with 5,000 samples", 152.91, 157.86},
		{"training with 10,000 samples", 303.95, 313.22},
		{"training with 15,000 samples", 602.70, 622.24},
	}
}

// GROMACS is NJIT's on one A100-80GB in ns a day: whole, and on 3g.40gb, 2g.20gb and 1g.10gb.
func GROMACS() (whole float64, on [3]float64) { return 118.59, [3]float64{115.507, 81.205, 43.28} }

// Find is the result of a key.
func Find(key string) (Result, bool) {
	for _, r := range Results() {
		if r.Key == key {
			return r, true
		}
	}
	return Result{}, false
}
