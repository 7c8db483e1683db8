package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
)

// simulatedNote stands above everything that was not measured on a GPU.
const simulatedNote = "SIMULATED GPU: these figures say nothing about hardware."

// Print is the result for a person: a table, what was not measured, the advice.
func Print(w io.Writer, r Result) error {
	var b strings.Builder
	r.head(&b)
	points := r.Points()
	if len(r.Served) > 0 {
		printServed(&b, r.Served)
		r.notMeasured(&b)
		_, err := io.WriteString(w, b.String())
		return err
	}
	table(&b, points, !r.Simulated)
	for _, p := range points {
		if p.Failed > 0 {
			fmt.Fprintf(&b, "\n%s: %d of %d repeats do not count, because a copy failed (%s)", p.name(), p.Failed,
				p.Failed+p.Repeats, p.Failure)
		}
	}
	r.notMeasured(&b)
	b.WriteByte('\n')
	if r.Simulated {
		b.WriteString("Advice: none, for the GPU is simulated and jobs on it hardly slow each other down\n")
		if vram := Advise(r).VRAM; vram != nil {
			fmt.Fprintf(&b, "        request_vram = %d\n", int64(*vram))
		}
	} else {
		printWinners(&b, points)
		Advise(r).print(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Result) notMeasured(b *strings.Builder) {
	for i, s := range r.Skipped {
		if i == 0 {
			b.WriteString("\nNot measured:\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", s.name(), s.Reason)
	}
}

func (r Result) head(b *strings.Builder) {
	if r.Simulated {
		fmt.Fprintf(b, "%s\n", simulatedNote)
	}
	g := r.Machine.GPU
	fmt.Fprintf(b, "%s (%s), %s", g.Name, g.UUID, g.Memory)
	if r.Machine.Driver != "" {
		fmt.Fprintf(b, ", driver %s", r.Machine.Driver)
	}
	fmt.Fprintf(b, "\n%s\n\n", r.CommandLine())
}

// CommandLine is the command, cut short.
func (r Result) CommandLine() string {
	const most = 120
	s := []rune(strings.Join(r.Command, " "))
	if len(s) > most {
		return string(s[:most-1]) + "…"
	}
	return string(s)
}

// table has a gain only where the GPU is real.
func table(b *strings.Builder, points []Point, gains bool) {
	alone, _ := Alone(points)
	t := &show.Table{}
	t.Row("MODE", "COPIES", "RUN TIME/s", "P95/s", "SLOWEST/s", "JOBS/h", "THROUGHPUT", "J/JOB", "W", "SM/%", "DRAM/%",
		"VRAM/JOB/MiB", "VRAM/GPU/MiB")
	for _, p := range points {
		if p.Repeats == 0 {
			continue
		}
		gain, known := Ratio(p.PerHour, alone.PerHour)
		t.Row(p.label(), strconv.Itoa(p.Copies), span(&p.JobSeconds, 1), fmt.Sprintf("%.2f", p.P95), span(&p.Slowest, 1),
			fmt.Sprintf("%.0f", p.PerHour.Median), ratio(gain, known && gains), middle(p.Joules, 1), middle(p.Watts, 1),
			middle(p.SMActivity, 100), middle(p.DRAMActivity, 100), amount(p.JobVRAM), amount(p.GPUVRAM))
	}
	t.Print(b)
}

func (p Point) label() string {
	switch {
	case p.Mode == MIG:
		return "mig " + p.Profile
	case p.ThreadPercentage != nil:
		return fmt.Sprintf("%s %g%%", p.Mode, *p.ThreadPercentage)
	}
	return string(p.Mode)
}

func (s Skip) name() string {
	if s.Copies == 0 {
		return string(s.Mode)
	}
	return fmt.Sprintf("%s, %d copies", s.Mode, s.Copies)
}

// span is a median with what it lies between.
func span(s *Spread, by float64) string {
	if s == nil || s.N == 0 {
		return "-"
	}
	if s.N == 1 {
		return fmt.Sprintf("%.2f", s.Median*by)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median*by, s.Min*by, s.Max*by)
}

func ratio(s Spread, known bool) string {
	if !known {
		return "-"
	}
	return span(&s, 1)
}

func middle(s *Spread, by float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", s.Median*by)
}

func amount(m *gpu.MiB) string {
	if m == nil {
		return "-"
	}
	return fmt.Sprintf("%d", int64(*m))
}

func (a Advice) print(b *strings.Builder) {
	switch a.Mode {
	case "":
		b.WriteString("Advice: unknown\n")
	case Exclusive:
		b.WriteString("Advice: a whole GPU for each job (mode = \"whole\")\n")
	case TimeSlice:
		fmt.Fprintf(b, "Advice: time slices (mode = \"time-slice\"), %d jobs at once; before driver 615 nothing limits such "+
			"jobs\n", a.Copies)
		if a.Limited != "" {
			fmt.Fprintf(b, "        the best mode with limits on older drivers: %s\n", a.Limited)
		}
	case MIG:
		fmt.Fprintf(b, "Advice: MIG devices %s (mode = \"mig\"), %d at once\n", a.Profile, a.Copies)
	default:
		fmt.Fprintf(b, "Advice: share by MPS (mode = \"mps\", threads = \"%s\"), %d jobs at once\n", a.threads(), a.Copies)
	}
	if a.VRAM != nil {
		fmt.Fprintf(b, "        request_vram = %d\n", int64(*a.VRAM))
	}
	for _, s := range a.Reasons {
		fmt.Fprintf(b, "  - %s\n", s)
	}
	for _, s := range a.Unknown {
		fmt.Fprintf(b, "  ? %s\n", s)
	}
}

// threads is the configuration's word.
func (a Advice) threads() string {
	if a.Mode == MPSCapped {
		return "equal"
	}
	return "uncapped"
}
