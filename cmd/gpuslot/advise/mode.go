package advise

import "fmt"

// Kind is how a class's jobs should get their GPU.
type Kind string

// The kinds: a share through MPS, or by time slices where the site shares the model so, a MIG
// device, whole GPUs, and that the records do not tell.
const (
	MPS       Kind = "mps"
	TimeSlice Kind = "time-slice"
	MIG       Kind = "mig"
	Whole     Kind = "whole"
	Unknown   Kind = "not enough data"
)

// Mode is the kind with its reasons.
type Mode struct {
	Kind    Kind   `json:"kind"`
	Profile string `json:"profile,omitempty"`
	// Jobs is how many run on a GPU at a time.
	Jobs int `json:"jobs_per_gpu,omitempty"`
	// Contention is what is known of the memory interface: "low", "contended",
	// "saturated" or "unknown".
	Contention string `json:"contention"`
	// Why are complete sentences.
	Why []string `json:"why"`
}

// The bounds of the rules; docs/advise.md says where they come from.
const (
	// fewest jobs that any statement rests on.
	fewest = 20
	// full: a job that keeps a GPU this busy gains nothing beside another one.
	full = 0.7
	// lowTraffic: jobs below it do not meet at the memory interface.
	lowTraffic = 0.25
	// roomy is three quarters of sharing.MostTraffic, up to where the jobs of a GPU
	// together do not queue for the memory interface; as gpuslot bench.
	roomy = 0.6
	// quiet: with so few multiprocessors busy the memory interface can not be busier.
	quiet = 0.25
)

// mode decides. Isolation is the site's wish that hardware keeps jobs apart, or
// that their tail matters, shared how it shares the model.
func decide(k Key, r Request, f Fit, a activities, isolation bool, shared Kind) Mode {
	contention, said := contentionOf(a)
	out := func(kind Kind, why ...string) Mode {
		m := Mode{Kind: kind, Contention: contention, Why: append(why, said)}
		switch kind {
		case MPS, TimeSlice:
			m.Jobs = *f.Jobs
		case MIG:
			m.Jobs, m.Profile = f.MIG.Jobs, f.MIG.Profile
		case Whole:
			m.Jobs = 1
		}
		return m
	}
	switch {
	case f.NoMPS:
		return out(Whole, "MPS has no limits on this model, and it has no MIG.")
	case k.GPUs > 1:
		return out(Whole, fmt.Sprintf("Its jobs ask for %d GPUs, and one MPS or MIG share is of one GPU.", k.GPUs))
	case r.Whole || f.ByVRAM != nil && *f.ByVRAM < 2:
		return out(Whole, "A job needs more than half of the GPU's VRAM.")
	case r.MiB == 0:
		return out(Unknown, notEnough(r))
	case a.sm.High == nil:
		return out(Unknown, "What its jobs did with the multiprocessors was not measured. "+howToMeasure)
	case a.sm.Low != nil && *a.sm.Low >= full:
		return out(Whole, fmt.Sprintf("One job keeps the multiprocessors busy %s of the time: two would wait for each other.",
			between(a.sm)))
	case contention == saturated:
		return out(Whole, "One job alone fills the memory interface: "+
			"two would wait for each other, and MIG devices have only their part of it.")
	case *a.sm.High >= full:
		return out(Unknown, fmt.Sprintf("One job keeps the multiprocessors busy %s of the time, "+
			"which does not tell whether two would gain.%s", between(a.sm), hint(a.sm)))
	}
	if shared == TimeSlice && !isolation && f.Jobs != nil && *f.Jobs > 1 {
		return out(TimeSlice, fmt.Sprintf("A job keeps the multiprocessors busy %s of the time.", between(a.sm)),
			"The site shares this model by time slices: jobs run in turns, and the fault of one ends no other.")
	}
	return decideShared(f, a, isolation, contention, out)
}

// decideShared chooses between MPS and MIG.
func decideShared(f Fit, a activities, isolation bool, contention string, out func(Kind, ...string) Mode) Mode {
	busy := fmt.Sprintf("A job keeps the multiprocessors busy %s of the time.", between(a.sm))
	switch {
	case isolation && f.MIG != nil:
		return out(MIG, busy, "The site requires isolation, which MIG gives and MPS does not.")
	case isolation:
		return out(Whole, busy, "The site requires isolation, and no MIG device of this model holds two such jobs.",
			faultsApart)
	case f.Jobs == nil:
		return out(Unknown, busy, "How many fit is not known.")
	case contention == contended && f.MIG != nil:
		return out(MIG, busy, fmt.Sprintf("Several would slow each other down at the memory interface through MPS; "+
			"a %s has its own part of it.", f.MIG.Profile))
	case contention == contended && *f.Jobs >= 2:
		return out(MPS, busy, "This model has no MIG device for it, so that fewer jobs share the GPU.")
	case contention == unknown && *a.sm.High >= quiet:
		return out(Unknown, busy, "Whether they would slow each other down at the memory interface is not known.")
	case *f.Jobs < 2:
		return out(Whole, busy, f.onlyOne())
	}
	return out(MPS, busy)
}

// faultsApart is what the driver's limits on cgroups allow.
const faultsApart = "If it is enough that the fault of one job ends no other: mode = \"time-slice\" does that from " +
	"driver 615 on, and jobs share the GPU in turns."

// onlyOne says what keeps a second job off.
func (f Fit) onlyOne() string {
	for _, b := range []struct {
		n    *int
		text string
	}{{f.ByMemoryTraffic, "Two would queue for the memory interface."}, {f.BySM, "Two would wait for multiprocessors."},
		{f.ByHost, "The node's CPUs and memory serve one on each GPU."}} {
		if b.n != nil && *b.n < 2 {
			return b.text
		}
	}
	return "Only one fits."
}

// howToMeasure says what GPUs before Hopper need.
const howToMeasure = "GPUs before Hopper tell it through the site's dcgm-exporter ([usage] dcgm)."

// hint is for an activity of which only the most is known.
func hint(r Range) string {
	if r.Expected != nil {
		return ""
	}
	return " " + howToMeasure
}

const (
	low       = "low"
	contended = "contended"
	saturated = "saturated"
	unknown   = "unknown"
)

// contentionOf judges the memory interface: by what one job alone did there.
func contentionOf(a activities) (kind, sentence string) {
	d := a.dram
	switch {
	case d.Expected == nil || d.High == nil:
		sentence = "Memory traffic was not measured: it is on Hopper and newer."
		if a.sm.High != nil && *a.sm.High < quiet {
			sentence = "Memory traffic was not measured; with so few multiprocessors busy it is not much."
		}
		return unknown, sentence
	case *d.High < lowTraffic:
		return low, fmt.Sprintf("Memory traffic is low: the interface is busy %s of the time.", between(d))
	case *d.Low >= full:
		return saturated, fmt.Sprintf("The memory interface is busy %s of the time.", between(d))
	case *d.Low >= lowTraffic:
		return contended, fmt.Sprintf("The memory interface is busy %s of the time.", between(d))
	}
	return unknown, fmt.Sprintf("The memory interface is busy %s of the time: too uncertain for a rule.", between(d))
}

// between is a range in words.
func between(r Range) string {
	p := func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	switch {
	case r.High == nil:
		return "an unknown part"
	case r.Low == nil:
		return "at most " + p(min(1, *r.High))
	case p(*r.Low) == p(*r.High):
		return p(*r.High)
	}
	return p(*r.Low) + " to " + p(min(1, *r.High))
}

// notEnoughData begins every such sentence.
const notEnoughData = "Not enough data"

func notEnough(r Request) string {
	switch {
	case r.Limited > 0 && r.Jobs >= r.Needed:
		return fmt.Sprintf(notEnoughData+": %d of %d jobs needed more VRAM than they had; how much is not known.",
			r.Limited, r.Jobs)
	case r.Jobs == 0:
		return fmt.Sprintf(notEnoughData+": no job's VRAM peak is known, and %d are needed.", r.Needed)
	}
	return fmt.Sprintf(notEnoughData+": the VRAM peaks of %d jobs are known, and %d are needed.", r.Jobs, r.Needed)
}
