package advise

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Setting are the lines of gpuslot.toml for one model.
type Setting struct {
	Model string `json:"model"`
	// GPUs are those that the records name, OfNode those of the largest node.
	GPUs   int `json:"gpus"`
	OfNode int `json:"gpus_of_a_node"`
	// Lines are the table with its header; empty where nothing should be changed.
	Lines []string `json:"lines,omitempty"`
	// Why are complete sentences.
	Why []string `json:"why"`
}

// work are the classes of a model by kind.
type work struct {
	classes []*Class
	hours   map[Kind]float64
	total   float64
}

func workOf(classes []*Class) work {
	w := work{classes: classes, hours: map[Kind]float64{}}
	for _, c := range classes {
		w.hours[c.Mode.Kind] += c.reserved
		w.total += c.reserved
	}
	return w
}

const (
	// undecided is the part of the reserved hours beyond which classes without
	// enough data keep a model from being advised on.
	undecided = 0.5
	// worthwhile is the part of the hours that a kind must have to shape a node.
	worthwhile = 0.1
)

// setting composes a model's lines, and holds them to the plan.
func (b *Adviser) setting(m *model, classes []*Class) Setting {
	all, ofNode := m.count()
	s := Setting{Model: m.name, GPUs: all, OfNode: ofNode}
	w := workOf(classes)
	part := func(k Kind) float64 { return w.hours[k] / max(w.total, 1e-9) }
	say := func(format string, args ...any) { s.Why = append(s.Why, fmt.Sprintf(format, args...)) }
	shared, name := b.options.shared(m), "MPS"
	if shared == TimeSlice {
		name = "time slices"
	}
	say("Of its reserved GPU-hours %s fit %s, %s MIG, %s need whole GPUs, and of %s the records do not tell enough.",
		percent(part(shared)), name, percent(part(MIG)), percent(part(Whole)), percent(part(Unknown)))
	switch {
	case w.total == 0 || part(Unknown) > undecided:
		say("Not enough data for a change of this model: record for longer.")
		return s
	case part(shared)+part(MIG) < worthwhile:
		say("Nothing is to gain by sharing it: leave it as it is.")
		return s
	}
	body := b.bodyOf(m, w, part(MIG) > part(shared), ofNode, say)
	if body == nil {
		return s
	}
	if n := wholeOf(part(Whole), all); ofNode < 2 && n > 0 {
		say("A node has one GPU: leave about %d of the %d nodes as they are, for the jobs that need whole GPUs, "+
			"and give these lines to the others.", n, all)
	}
	s.Lines = append([]string{fmt.Sprintf("[model.%q]", m.name)}, body...)
	inv, isReal := b.options.node(m)
	if !isReal {
		inv = m.inventory(max(1, ofNode))
	}
	if _, err := buildText(b.options.requestLines()+"\n"+strings.Join(s.Lines, "\n")+"\n", inv); err != nil {
		say("The lines that follow from this cannot be planned, so none are given: %v.", err)
		s.Lines = nil
	}
	return s
}

// bodyOf are the lines below the header: how the GPUs are shared, and which are not.
func (b *Adviser) bodyOf(m *model, w work, divided bool, ofNode int, say func(string, ...any)) []string {
	n, most := wholeOf(w.hours[Whole]/w.total, ofNode), w.mostGPUs()
	elastic := !divided && most > n && n > 0 && b.options.shared(m) == MPS
	var body []string
	if divided {
		body = b.migLines(m, w, say)
	} else {
		body = b.mpsLines(m, w, elastic, say)
	}
	switch {
	case body == nil || n == 0:
		return body
	case elastic:
		say("Jobs ask for up to %d GPUs at a time, more than the hours of whole GPUs keep busy: "+
			"elastic GPUs serve both kinds in turns.", most)
		return body
	case most > n && most > 1:
		n = min(most, ofNode-1)
		say("%d of the %d GPUs of a node stay whole: jobs ask for up to %d at a time.", n, ofNode, most)
	default:
		say("%d of the %d GPUs of a node stay whole for the jobs that need that.", n, ofNode)
	}
	return append(body, fmt.Sprintf("whole = %d", n))
}

// mostGPUs is what a job asks for at most.
func (w work) mostGPUs() int {
	most := 0
	for _, c := range w.classes {
		if c.Mode.Kind == Whole {
			most = max(most, c.GPUs)
		}
	}
	return most
}

// wholeOf is how many GPUs of a node stay whole for a part of the work; one is
// left to share.
func wholeOf(part float64, ofNode int) int {
	if part < worthwhile || ofNode < 2 {
		return 0
	}
	return min(max(1, int(math.Round(part*float64(ofNode)))), ofNode-1)
}

// mpsLines: the number of shares is what the class with the most jobs on a GPU can
// use; the others' VRAM bounds theirs.
func (b *Adviser) mpsLines(m *model, w work, elastic bool, say func(string, ...any)) []string {
	as, err := b.offer(m, 0)
	if err != nil {
		say("Its plan cannot be made: %v.", err)
		return nil
	}
	want := 0
	for _, c := range w.classes {
		if c.Mode.Kind == b.options.shared(m) && c.reserved >= worthwhile*w.total {
			want = max(want, c.Mode.Jobs)
		}
	}
	if want == 0 {
		want = as.Shares
	}
	want = b.possible(m, want)
	body := []string{fmt.Sprintf("mode = %q", string(b.options.shared(m)))}
	if elastic {
		body = []string{`mode = "elastic"`}
	}
	if want == as.Shares {
		say("%d shares, as the plan chooses.", want)
		return body
	}
	say("%d shares instead of %d: so many jobs of the class that fits most often are served at a time.", want, as.Shares)
	return append(body, fmt.Sprintf("shares = %d", want))
}

// possible is the largest number of shares up to a wish that the plan takes.
func (b *Adviser) possible(m *model, want int) int {
	for ; want > 1; want-- {
		if as, err := b.offer(m, want); err == nil && as.Shares == want {
			break
		}
	}
	return max(1, want)
}

// migLines: the layout that serves the classes in proportion to the GPUs that
// they kept at a time.
func (b *Adviser) migLines(m *model, w work, say func(string, ...any)) []string {
	chip := m.chip // no class of a model without MIG is of its kind
	var demand []mig.Demand
	for _, c := range w.classes {
		if c.Mode.Kind != MIG {
			continue
		}
		count := int(math.Ceil(c.reserved / w.hours[MIG] * float64(chip.Slices())))
		i := slices.IndexFunc(demand, func(d mig.Demand) bool { return d.Profile == c.Mode.Profile })
		if i < 0 {
			demand, i = append(demand, mig.Demand{Profile: c.Mode.Profile}), len(demand)
		}
		demand[i].Count += count
	}
	p, err := mig.PlanDemand(&mig.Catalogue{}, []gpu.MIGGPU{{UUID: m.card.UUID, Chip: chip}}, demand)
	if err != nil || len(p.GPUs) == 0 || len(p.GPUs[0].Layout) == 0 {
		say("No layout serves it: %v.", err)
		return nil
	}
	layout := chip.Format(p.GPUs[0].Layout)
	say("The layout %s serves most of what waits at a time.", layout)
	return []string{`mode = "mig"`, fmt.Sprintf("mig_layout = %q", strings.ReplaceAll(layout, ",", ", "))}
}

// submitLines are for the jobs of a class.
func submitLines(k Key, r Request, m Mode) []string {
	switch {
	case m.Kind == Whole:
		return []string{fmt.Sprintf("request_gpus = %d", k.GPUs)}
	case r.MiB > 0:
		return []string{"request_gpus = 1", fmt.Sprintf("request_vram = %d", r.MiB)}
	}
	return nil
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
