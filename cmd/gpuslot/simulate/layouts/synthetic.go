package layouts

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Synthetic is a trace made by chance: arrivals one after another at a constant
// rate, exponential durations, and shares of the profiles by their compute
// slices.
type Synthetic struct {
	// Load is the part of the compute slices that all jobs together need, 0 to 2.
	Load float64
	Seed uint64
	Jobs int
	// Mean is the mean duration.
	Mean time.Duration
	// Most is the largest number of compute slices that a job needs.
	Most int
	// Larger says that a job may use a larger instance: it asks for memory and SMs,
	// not for a profile.
	Larger bool
}

// shares of jobs by compute slices. Most jobs are small, and some need more
// than half of a GPU.
var shares = map[int]int{1: 50, 2: 25, 3: 19, 4: 6}

// ParseSynthetic reads "load=0.5,seed=1,jobs=500,minutes=30,fit=exact,most=4";
// what is left out is as here, fit=larger lets jobs use larger instances.
func ParseSynthetic(text string) (Synthetic, error) {
	s := Synthetic{Load: 0.5, Seed: 1, Jobs: 500, Mean: 30 * time.Minute, Most: 4}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		var err error
		switch key {
		case "":
		case "load":
			s.Load, err = strconv.ParseFloat(value, 64)
		case "seed":
			s.Seed, err = strconv.ParseUint(value, 10, 64)
		case "jobs":
			s.Jobs, err = strconv.Atoi(value)
		case "minutes":
			var f float64
			if f, err = strconv.ParseFloat(value, 64); err == nil {
				s.Mean, err = duration(f * 60)
			}
		case "most":
			s.Most, err = strconv.Atoi(value)
		case "fit":
			s.Larger = value == "larger"
			if !s.Larger && value != "exact" {
				err = fmt.Errorf("fit %q", value)
			}
		default:
			err = fmt.Errorf("key %q", key)
		}
		if err != nil {
			return Synthetic{}, fmt.Errorf("synthetic trace: %q: "+
				"write load=0.5,seed=1,jobs=500,minutes=30,fit=exact,most=4, or fit=larger", item)
		}
	}
	return s, s.check()
}

func (s Synthetic) check() error {
	switch {
	case !(s.Load > 0 && s.Load <= 2):
		return fmt.Errorf("synthetic trace: load %g: it is above 0, up to 2", s.Load)
	case s.Jobs < 1 || s.Jobs > MaxJobs/10:
		return fmt.Errorf("synthetic trace: %d jobs: 1 to %d can be made", s.Jobs, MaxJobs/10)
	case s.Mean < time.Second || s.Mean > 1000*time.Hour:
		return fmt.Errorf("synthetic trace: a mean duration of %s: it is 1 s to 1000 h", s.Mean)
	}
	return nil
}

// Trace makes the jobs for a number of GPUs; equal seeds give equal traces.
func (s Synthetic) Trace(chip gpu.Chip, gpus int) (Trace, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := checkGPUs(gpus); err != nil {
		return nil, err
	}
	kinds, all := s.kindsOf(chip)
	if all == 0 {
		return nil, fmt.Errorf("synthetic trace: %s has no profile of up to %d slices that takes a part of a GPU",
			chip.Model, s.Most)
	}
	slicesOfAll := 0
	for _, k := range kinds {
		slicesOfAll += k.Slices * shares[k.Slices]
	}
	mean := float64(slicesOfAll) / float64(all) * s.Mean.Seconds() // slice-seconds of a job
	every := mean / (s.Load * float64(chip.Slices()*gpus))
	r := rand.New(rand.NewPCG(s.Seed, 1))
	var t Trace
	at := 0.0
	for range s.Jobs {
		at += exponential(r) * every
		lasts := max(1, exponential(r)*s.Mean.Seconds())
		j, err := s.job(at, lasts, pick(r, kinds, all))
		if err != nil {
			return nil, err
		}
		t = append(t, j)
	}
	return t, nil
}

func (s Synthetic) job(at, lasts float64, p gpu.Profile) (Job, error) {
	arrival, err := duration(at)
	if err != nil {
		return Job{}, err
	}
	d, err := duration(lasts)
	if s.Larger && p.Memory > 0 {
		return Job{Arrival: arrival, Duration: d, Memory: p.Memory, Multiprocessors: p.Multiprocessors}, err
	}
	return Job{Arrival: arrival, Duration: d, Profile: p.Name}, err
}

// exponential has the mean 1.
func exponential(r *rand.Rand) float64 { return -math.Log(1 - r.Float64()) }

// kindsOf are the plainest profile of each number of slices that has a share.
func (s Synthetic) kindsOf(chip gpu.Chip) (kinds []gpu.Profile, all int) {
	profiles := slices.SortedFunc(slices.Values(chip.Profiles), compareProfiles)
	for _, p := range profiles {
		if shares[p.Slices] == 0 || p.Slices > s.Most || p.Slices == chip.Slices() ||
			slices.ContainsFunc(kinds, func(k gpu.Profile) bool { return k.Slices == p.Slices }) {
			continue
		}
		kinds, all = append(kinds, p), all+shares[p.Slices]
	}
	return kinds, all
}

func pick(r *rand.Rand, kinds []gpu.Profile, all int) gpu.Profile {
	n := r.IntN(all)
	for _, k := range kinds {
		if n -= shares[k.Slices]; n < 0 {
			return k
		}
	}
	return kinds[0]
}
