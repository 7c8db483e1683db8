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

// Synthetic is a trace made by chance: arrivals at a rate, exponential durations, and
// shares of the profiles by their compute slices.
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
	// Mix is small, mixed or large: the shares of jobs by compute slices; empty means mixed.
	Mix string
	// Arrivals are flat, one after another at a constant rate; daily, at a rate that swings by
	// 0.8 of its mean within a day; or bursts of 20 jobs of one profile in the mean. Empty means flat.
	Arrivals string
}

// shares of jobs by compute slices. Most jobs are small, and some need more
// than half of a GPU.
var shares = map[string]map[int]int{
	"small": {1: 70, 2: 20, 3: 8, 4: 2},
	"mixed": {1: 50, 2: 25, 3: 19, 4: 6},
	"large": {1: 25, 2: 25, 3: 35, 4: 15},
}

// swing is the part of the mean rate by which daily arrivals swing; burst is how many jobs of
// one profile come together in the mean.
const (
	swing = 0.8
	burst = 20
)

const day = 24 * 60 * 60 // seconds

// synthetic is what ParseSynthetic reads, with what is usual.
const synthetic = "load=0.5,seed=1,jobs=500,minutes=30,fit=exact,most=4,mix=mixed,arrivals=flat"

// ParseSynthetic reads text like synthetic; what is left out is as there. fit=larger lets jobs
// use larger instances.
func ParseSynthetic(text string) (Synthetic, error) {
	s := Synthetic{Load: 0.5, Seed: 1, Jobs: 500, Mean: 30 * time.Minute, Most: 4, Mix: "mixed", Arrivals: "flat"}
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
		case "mix":
			s.Mix = value
		case "arrivals":
			s.Arrivals = value
		default:
			err = fmt.Errorf("key %q", key)
		}
		if err != nil {
			return Synthetic{}, fmt.Errorf("synthetic trace: %q: write %s, or fit=larger", item, synthetic)
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
	case s.Mix != "" && shares[s.Mix] == nil:
		return fmt.Errorf("synthetic trace: mix %q: it is small, mixed or large", s.Mix)
	case !slices.Contains([]string{"", "flat", "daily", "bursts"}, s.Arrivals):
		return fmt.Errorf("synthetic trace: arrivals %q: they are flat, daily or bursts", s.Arrivals)
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
		slicesOfAll += k.Slices * s.share(k)
	}
	mean := float64(slicesOfAll) / float64(all) * s.Mean.Seconds() // slice-seconds of a job
	every := mean / (s.Load * float64(chip.Slices()*gpus))
	r := rand.New(rand.NewPCG(s.Seed, 1))
	var t Trace
	at, left := 0.0, 0
	var kind gpu.Profile
	for range s.Jobs {
		if left == 0 {
			at = s.next(r, at, every)
		}
		lasts := max(1, exponential(r)*s.Mean.Seconds())
		if left == 0 {
			kind = s.pick(r, kinds, all)
			left = s.together(r)
		}
		left--
		j, err := s.job(at, lasts, kind)
		if err != nil {
			return nil, err
		}
		t = append(t, j)
	}
	return t, nil
}

// next is when the next job or burst comes.
func (s Synthetic) next(r *rand.Rand, at, every float64) float64 {
	switch s.Arrivals {
	case "daily": // of arrivals at the highest rate some are left out (Lewis and Shedler 1979)
		for {
			at += exponential(r) * every / (1 + swing)
			if r.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*at/day) {
				return at
			}
		}
	case "bursts":
		return at + exponential(r)*every*burst
	}
	return at + exponential(r)*every
}

// together is how many jobs of one profile come at once.
func (s Synthetic) together(r *rand.Rand) int {
	if s.Arrivals != "bursts" {
		return 1
	}
	// Geometric, with the mean burst.
	return 1 + int(exponential(r)/-math.Log(1-1.0/burst))
}

func (s Synthetic) share(p gpu.Profile) int {
	if s.Mix == "" {
		return shares["mixed"][p.Slices]
	}
	return shares[s.Mix][p.Slices]
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
		if s.share(p) == 0 || p.Slices > s.Most || p.Slices == chip.Slices() ||
			slices.ContainsFunc(kinds, func(k gpu.Profile) bool { return k.Slices == p.Slices }) {
			continue
		}
		kinds, all = append(kinds, p), all+s.share(p)
	}
	return kinds, all
}

func (s Synthetic) pick(r *rand.Rand, kinds []gpu.Profile, all int) gpu.Profile {
	n := r.IntN(all)
	for _, k := range kinds {
		if n -= s.share(k); n < 0 {
			return k
		}
	}
	return kinds[0]
}
