package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/published"
)

// figure is a figure of a paper and the same quantity of our own measurement.
type figure struct {
	source, what, theirs string
	ours                 func(points []bench.Point) (bench.Spread, bool)
}

// The papers. Each measured another workload on other GPUs than we do.
const (
	kit     = published.KIT
	cern    = published.CERN
	migPerf = published.MIGPerf
)

// The columns of KIT's tables.
var (
	modesOfKIT                              = published.KITModes()
	kitExclusive, kitSimple, kitMPS, kitMIG = modesOfKIT[1], modesOfKIT[2], modesOfKIT[3], modesOfKIT[4]
)

// lessEnergy and moreEpochs are KIT's ratios to exclusive use.
func lessEnergy(m published.KITMode) string { return fmt.Sprintf("%.2f", kitExclusive.KJ/m.KJ) }
func moreEpochs(m published.KITMode) string {
	return fmt.Sprintf("%.2f", m.EpochsPerSecond/kitExclusive.EpochsPerSecond)
}

// copiesOfKIT is how many copies KIT's A100 had memory for.
const copiesOfKIT = 12

// figures are what the papers print, or ratios of what they print.
var figures = []figure{
	{kit + ", Figure 2", "throughput with 12 copies, MPS against time slicing", "close to 5", against(
		throughput, point(bench.MPS, "", copiesOfKIT), point(bench.TimeSlice, "", copiesOfKIT))},
	{kit + ", Figure 2", "run time of 12 copies against one, time slicing", "grows almost linearly: 12", against(
		runTime, point(bench.TimeSlice, "", copiesOfKIT), point(bench.Exclusive, "", 1))},
	{kit + ", Figure 2", "run time of 12 copies against one, MPS", "almost flat: 1", against(
		runTime, point(bench.MPS, "", copiesOfKIT), point(bench.Exclusive, "", 1))},
	{kit + ", Table 1", "energy of a job, exclusive against 12 copies by time slicing", lessEnergy(kitSimple), against(
		energy, point(bench.Exclusive, "", 1), point(bench.TimeSlice, "", copiesOfKIT))},
	{kit + ", Table 1", "energy of a job, exclusive against 12 copies under MPS", lessEnergy(kitMPS), against(
		energy, point(bench.Exclusive, "", 1), point(bench.MPS, "", copiesOfKIT))},
	{kit + ", Table 1", "energy of a job, exclusive against 7 instances 1g", lessEnergy(kitMIG), against(
		energy, point(bench.Exclusive, "", 1), point(bench.MIG, "1g", 7))},
	{kit + ", Table 2", "throughput with 12 copies by time slicing against exclusive", moreEpochs(kitSimple), against(
		throughput, point(bench.TimeSlice, "", copiesOfKIT), point(bench.Exclusive, "", 1))},
	{kit + ", Table 2", "throughput with 12 copies under MPS against exclusive", moreEpochs(kitMPS), against(
		throughput, point(bench.MPS, "", copiesOfKIT), point(bench.Exclusive, "", 1))},
	{kit + ", Table 2", "throughput with 7 instances 1g against exclusive", moreEpochs(kitMIG), against(
		throughput, point(bench.MIG, "1g", 7), point(bench.Exclusive, "", 1))},
	{cern, "run time on 7g against MIG mode off", "simulation 1.09; training 1.03 to 1.04; FLOPS 1.07 to 1.10", against(
		runTime, point(bench.MIG, "7g", 1), point(bench.Exclusive, "", 1))},
	{cern, "run time on 3g against 7g", "simulation 2.16 to 2.20; training 1.77 to 1.82; CUDA cores 2.21 to 2.29; tensor cores 1.61", against(
		runTime, point(bench.MIG, "3g", 1), point(bench.MIG, "7g", 1))},
	{cern, "run time on 2g against 3g", "simulation 1.48 to 1.49; CUDA cores 1.50 to 1.51; tensor cores 1.42", against(
		runTime, point(bench.MIG, "2g", 1), point(bench.MIG, "3g", 1))},
	{cern, "run time on 1g against 2g", "simulation 1.97 to 1.98; training 1.93 to 1.94; CUDA cores 2.07 to 2.10; tensor cores 2.19", against(
		runTime, point(bench.MIG, "1g", 1), point(bench.MIG, "2g", 1))},
	{cern, "throughput of 7 instances 1g against MIG mode off", "fp32 0.89; fp16 on tensor cores 1.28", against(
		throughput, point(bench.MIG, "1g", 7), point(bench.Exclusive, "", 1))},
	{migPerf, "95th percentile of the run time against its median, 8 copies under MPS", "spreads with batch and model size",
		tail(point(bench.MPS, "", 8))},
	{migPerf, "95th percentile of the run time against its median, 7 instances 1g", "steadier than MPS",
		tail(point(bench.MIG, "1g", 7))},
	{migPerf, "energy of a job, 1g against 7g", "above 1: the larger instance uses less", against(
		energy, point(bench.MIG, "1g", 1), point(bench.MIG, "7g", 1))},
}

// which is one point of a result: a mode, the slices of a MIG profile, copies.
type which struct {
	mode   bench.Mode
	slices string
	copies int
}

func point(mode bench.Mode, profile string, copies int) which { return which{mode, profile, copies} }

// of finds the point. A job alone takes as long with any number of copies, see bench.Alone.
func (w which) of(points []bench.Point) (bench.Point, bool) {
	if w.mode == bench.Exclusive {
		return bench.Alone(points)
	}
	i := slices.IndexFunc(points, func(p bench.Point) bool {
		part, _, _ := strings.Cut(p.Profile, ".")
		return p.Mode == w.mode && part == w.slices && p.Copies == w.copies && p.Repeats > 0
	})
	if i < 0 {
		return bench.Point{}, false
	}
	return points[i], true
}

func throughput(p bench.Point) *bench.Spread { return &p.PerHour }
func runTime(p bench.Point) *bench.Spread    { return &p.JobSeconds }
func energy(p bench.Point) *bench.Spread     { return p.Joules }

// against is the ratio of a value at two points.
func against(value func(bench.Point) *bench.Spread, of, to which) func([]bench.Point) (bench.Spread, bool) {
	return func(points []bench.Point) (bench.Spread, bool) {
		a, thereA := of.of(points)
		b, thereB := to.of(points)
		if !thereA || !thereB || value(a) == nil || value(b) == nil {
			return bench.Spread{}, false
		}
		return bench.Ratio(*value(a), *value(b))
	}
}

// tail is how far the slow copies lie behind the middle one.
func tail(w which) func([]bench.Point) (bench.Spread, bool) {
	return func(points []bench.Point) (bench.Spread, bool) {
		p, there := w.of(points)
		if !there || p.JobSeconds.Median <= 0 {
			return bench.Spread{}, false
		}
		return bench.SpreadOf([]float64{p.P95 / p.JobSeconds.Median})
	}
}

// besidePapers has one row for each figure and one column for each result.
func besidePapers(results []Sharing) string {
	var b strings.Builder
	b.WriteString("## Beside the papers' figures\n\n")
	b.WriteString("Other workloads on other GPUs: KIT trained networks of high-energy physics on eight A100, and metered the whole machine.\n" +
		"CERN had one A100-40GB. MIGPerf trained and served models on A100-80GB and A30; no number of its is taken here.\n\n")
	b.WriteString("![MPS against time slicing](papers-sharing.svg) ![MIG instances](papers-mig.svg) " +
		"![slow copies](papers-tail.svg)\n\n")
	b.WriteString("| source | quantity | the paper |")
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.Label)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "| %s | %s | %s |", f.source, f.what, f.theirs)
		for _, r := range results {
			text := "not measured"
			if v, ok := f.ours(r.Points()); ok {
				text = span(&v)
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	return b.String() + "\n" + tables()
}

// paperPlots draw what the papers measured, with our own results of the same
// quantity where there are any.
func paperPlots(results []Sharing) map[string]string {
	sharing := []series{{"KIT Figure 2", []at{{copiesOfKIT, 5, 5, 5}}}}
	// CERN's TFLOPS and run times on an A100-40GB, each against 7g.
	instances := []series{
		flops("CERN fp32", 1),
		flops("CERN tensor", 3),
	}
	var late []series
	simulated := false
	for _, r := range results {
		points := r.Points()
		simulated = simulated || r.Simulated
		sharing = append(sharing, gains(r.Label, points)...)
		instances = append(instances, byInstance(r.Label, points)...)
		late = append(late, tails(r.Label, points)...)
	}
	mark := marked(simulated)
	return map[string]string{
		"papers-sharing.svg": plot("throughput of MPS against time slicing"+mark, "copies on one GPU", sharing),
		"papers-mig.svg":     plot("throughput of one instance against 7g"+mark, "compute slices of the instance", instances),
		"papers-tail.svg":    plot("95th percentile of the run time against its median"+mark, "copies on one GPU", late),
	}
}

// flops is a row of CERN's FLOPS, each by that on 7g.
func flops(name string, row int) series {
	on := published.CERNAll()[row].On
	return line(name, 1, on[3]/on[0], 2, on[2]/on[0], 3, on[1]/on[0], 7, 1)
}

// line is a series of pairs x, y without a spread.
func line(name string, pairs ...float64) series {
	s := series{name: name}
	for pair := range slices.Chunk(pairs, 2) {
		s.points = append(s.points, at{pair[0], pair[1], pair[1], pair[1]})
	}
	return s
}

// gains is what MPS gains over time slicing, by copies.
func gains(label string, points []bench.Point) []series {
	s := series{name: label}
	for _, p := range points {
		if p.Mode != bench.MPS {
			continue
		}
		n := p.Copies
		if v, ok := against(throughput, point(bench.MPS, "", n), point(bench.TimeSlice, "", n))(points); ok {
			s.points = append(s.points, at{float64(n), v.Median, v.Min, v.Max})
		}
	}
	return some(s)
}

// byInstance is how fast one job is on an instance, against 7g.
func byInstance(label string, points []bench.Point) []series {
	s := series{name: label}
	for _, n := range []int{1, 2, 3, 4, 7} {
		one := point(bench.MIG, strconv.Itoa(n)+"g", 1)
		if v, ok := against(runTime, point(bench.MIG, "7g", 1), one)(points); ok {
			s.points = append(s.points, at{float64(n), v.Median, v.Min, v.Max})
		}
	}
	return some(s)
}

// tails is tail under MPS and on MIG instances, by copies.
func tails(label string, points []bench.Point) (out []series) {
	for _, mode := range []bench.Mode{bench.MPS, bench.MIG} {
		all := slices.DeleteFunc(slices.Clone(points), func(p bench.Point) bool { return p.Mode != mode })
		for _, s := range seriesOf(all, func(p bench.Point) *bench.Spread {
			part, _, _ := strings.Cut(p.Profile, ".")
			v, ok := tail(point(mode, part, p.Copies))(points)
			if !ok {
				return nil
			}
			return &v
		}) {
			s.name = label + " " + s.name
			out = append(out, s)
		}
	}
	return out
}

// some leaves out a line without points.
func some(s series) []series {
	if len(s.points) == 0 {
		return nil
	}
	return []series{s}
}

// tables are the papers' own: the ratios above follow from them.
func tables() string {
	var b strings.Builder
	row := func(what string, value func(published.KITMode) string, modes []published.KITMode) {
		fmt.Fprintf(&b, "| %s |", what)
		for _, m := range modes {
			fmt.Fprintf(&b, " %s |", value(m))
		}
		b.WriteByte('\n')
	}
	two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	name := func(m published.KITMode) string { return m.Name }
	b.WriteString("KIT's Table 1, eight A100, the whole machine's power:\n\n")
	row("", name, modesOfKIT)
	b.WriteString("|---|---|---|---|---|---|\n")
	row("concurrent instances", func(m published.KITMode) string { return strconv.Itoa(m.Instances) }, modesOfKIT)
	row("run time [min]", func(m published.KITMode) string { return two(m.Minutes) }, modesOfKIT)
	row("power [W]", func(m published.KITMode) string { return two(m.Watts) }, modesOfKIT)
	row("energy per training [kJ]", func(m published.KITMode) string { return two(m.KJ) }, modesOfKIT)
	b.WriteString("\nKIT's Table 2, in HTCondor:\n\n")
	row("", name, modesOfKIT[1:])
	b.WriteString("|---|---|---|---|---|\n")
	row("epochs per second", func(m published.KITMode) string { return two(m.EpochsPerSecond) }, modesOfKIT[1:])
	row("against exclusive", moreEpochs, modesOfKIT[1:])
	fmt.Fprintf(&b, "\nCERN's FLOPS on one A100-40GB (%s), TFLOPS:\n\n| | MIG off | %s |\n|---|---|---|---|---|---|\n",
		published.CERNPage, strings.Join(published.Partitions(), " | "))
	for _, f := range published.CERNAll() {
		fmt.Fprintf(&b, "| %s | %.3f |", f.Format, f.Off)
		for _, v := range f.On {
			fmt.Fprintf(&b, " %.3f |", v)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
