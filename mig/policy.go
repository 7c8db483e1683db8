package mig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Repartition is how far gpuslot goes when work waits that no idle instance serves.
type Repartition string

// Static leaves layouts as they are; Suggest says what Auto would do; Auto does it.
const (
	Static  Repartition = "static"
	Suggest Repartition = "suggest"
	Auto    Repartition = "auto"
)

// Rules are what the policy keeps to.
type Rules struct {
	Repartition Repartition `json:"repartition"`
	// Samples is in how many looks in a row a demand must be there to count.
	Samples int `json:"samples"`
	// Dwell is how long an instance exists at least before a change takes it away.
	Dwell time.Duration `json:"dwell"`
	// PerHour is the most changes of one GPU in any hour.
	PerHour int `json:"per_hour"`
	// ReserveAfter is how long work waits before instances are kept free for it.
	ReserveAfter time.Duration `json:"reserve_after"`
	// ReserveFor is how long a reservation lasts in which no job ends.
	ReserveFor time.Duration `json:"reserve_for"`
	// Reservations is the most at one time on all GPUs; one GPU has at most one.
	Reservations int `json:"reservations"`
}

// DefaultRules change nothing; with another Repartition they are those that
// the comparison in simulate uses.
func DefaultRules() Rules {
	return Rules{
		Repartition: Static, Samples: 2, Dwell: 10 * time.Minute, PerHour: 6,
		ReserveAfter: time.Hour, ReserveFor: 12 * time.Hour, Reservations: 1,
	}
}

// Check tells which rule cannot be kept to.
func (r Rules) Check() error {
	if !slices.Contains([]Repartition{Static, Suggest, Auto}, r.Repartition) {
		return fmt.Errorf("repartition %q: it is static, suggest or auto", r.Repartition)
	}
	if r.Samples < 1 || r.PerHour < 1 || r.Reservations < 0 {
		return fmt.Errorf("samples %d, changes per hour %d, reservations %d: 1, 1 and 0 are the least", r.Samples, r.PerHour,
			r.Reservations)
	}
	for _, d := range []time.Duration{r.Dwell, r.ReserveAfter, r.ReserveFor} {
		if d < 0 {
			return fmt.Errorf("%s: no time of a rule can be negative", d)
		}
	}
	return nil
}

// Sight is one look at a node.
type Sight struct {
	At time.Time `json:"at"`
	// GPUs are those in MIG mode. One that is being changed is left out.
	GPUs []gpu.MIGGPU `json:"gpus"`
	// Places are the only ones where instances may be made, by GPU; a GPU that is
	// not named may use all of its chip.
	Places map[gpu.UUID]gpu.Layout `json:"places,omitempty"`
	// Demand is the pool's idle jobs, summed by the smallest profile that serves
	// them. An Age of 0 means not known.
	Demand []Demand `json:"demand"`
}

// Act is what a decision asks for.
type Act string

// Nothing is to be done; Propose: people may read Why; Reserve: keep new jobs
// off what Reserved names; Replan: carry out the plan.
// Reserved is in force with every act.
const (
	Nothing Act = "nothing"
	Propose Act = "suggest"
	Reserve Act = "reserve"
	Replan  Act = "change"
)

// Decision is what the policy makes of a look.
type Decision struct {
	Act Act `json:"act"`
	// Why is a sentence for people, whatever the act.
	Why string `json:"why"`
	// Plan is what to carry out (change), or what would be (suggest).
	Plan *Plan `json:"plan,omitempty"`
	// Reserved are all reservations in force: no new job may start on their instances.
	Reserved []Reservation `json:"reserved,omitempty"`
}

// Decide weighs the work that waits against a change of layouts. It keeps
// what it must remember in Past, whose zero value is the beginning. No plan
// touches an instance in use or one that gpuslot did not make. The error is that of
// a rule, or of a GPU that cannot be planned; Past is then as it was.
func Decide(c *Catalogue, r Rules, past Past, now Sight) (Decision, Past, error) {
	if err := r.Check(); err != nil {
		return Decision{}, past, err
	}
	v, err := newView(c, r, past, now)
	if err != nil {
		return Decision{}, past, err
	}
	v.observe(now)
	d, err := v.decide()
	if err != nil {
		return Decision{}, past, err
	}
	if r.Repartition != Auto {
		v.past.Reservations = nil
	}
	d.Reserved = slices.Clone(v.past.Reservations)
	return d, v.past, nil
}

func (v *view) decide() (Decision, error) {
	steady, missing := v.steady()
	switch {
	case v.rules.Repartition == Static:
		return v.quiet("repartition is static"), nil
	case v.newest().total() == 0:
		return v.quiet("no work waits that idle instances do not serve"), nil
	case missing == 0:
		return v.quiet(fmt.Sprintf("work waits for %s, but not yet in %d looks in a row", v.newest().names(),
			v.rules.Samples)), nil
	}
	v.reserve(steady)
	plan, err := v.plan(steady)
	if err != nil {
		return Decision{}, err
	}
	return v.judge(plan, steady), nil
}

// judge carries out a plan that serves more.
func (v *view) judge(plan Plan, steady []Demand) Decision {
	made := v.made(plan, steady)
	if len(plan.Steps) == 0 || made.total() == 0 {
		return v.quiet(v.whyNot(plan))
	}
	why := made.String() + " more: " + describeSteps(plan)
	if v.rules.Repartition == Suggest {
		return Decision{Act: Propose, Why: "auto would serve " + why, Plan: &plan}
	}
	v.changed(plan, made)
	return Decision{Act: Replan, Why: "serves " + why, Plan: &plan}
}

// quiet is a decision without a change.
func (v *view) quiet(why string) Decision {
	act := Nothing
	reserved := v.past.Reservations
	switch {
	case len(reserved) > 0 && v.rules.Repartition == Suggest:
		return Decision{Act: Propose, Why: "auto would wait: " + v.describe(reserved[0])}
	case len(reserved) > 0:
		act, why = Reserve, v.describe(reserved[0])
	}
	for _, n := range v.notes {
		why += "; " + n
	}
	return Decision{Act: act, Why: why}
}

func describeSteps(plan Plan) string {
	var words []string
	for _, g := range plan.GPUs {
		if len(g.Destroyed)+len(g.Created) == 0 {
			continue
		}
		var parts []string
		if len(g.Destroyed) > 0 {
			parts = append(parts, "destroy "+strings.Join(g.Destroyed, ","))
		}
		if len(g.Created) > 0 {
			parts = append(parts, "create "+strings.Join(g.Created, ","))
		}
		words = append(words, fmt.Sprintf("GPU %d: %s", g.Index, strings.Join(parts, ", ")))
	}
	return strings.Join(words, "; ")
}

// whyNot collects why a plan serves no more jobs.
func (v *view) whyNot(plan Plan) string {
	var words []string
	for _, s := range plan.Served {
		if s.Served < s.Wanted {
			words = append(words, s.Profile+": "+s.Why)
		}
	}
	if len(words) == 0 {
		return "idle instances serve what waits"
	}
	return strings.Join(words, "; ")
}
