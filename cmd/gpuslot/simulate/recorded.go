package simulate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Reading says how what was recorded becomes jobs.
type Reading struct {
	// Work is taken for what a job's record does not tell.
	Work Work
	// Margin is by how much a request is above the peak, for a job that had no
	// request_vram; 1.2 is a fifth more.
	Margin float64
	// Dead is the dead time of each job in seconds, which no record has.
	Dead float64
}

// Recorded are jobs from a file.
type Recorded struct {
	Jobs []Job
	// Skipped are entries that are no GPU job that ran, by reason.
	Skipped map[string]int
}

// Reasons for which an entry is left out.
const (
	noJob    = "no record of a job"
	noGPU    = "asked for no GPU"
	neverRan = "never ran"
	noTime   = "does not say when it came or ended"
)

// ReadJobs reads the jobs of several files together, each of records of gpuslot or of
// what condor_history -json or -jsonl prints, told apart by the first bytes. They
// come out by arrival, the first at 0. A file is named in errors if it has a Name.
func ReadJobs(r Reading, files ...io.Reader) (Recorded, error) {
	out := Recorded{Skipped: map[string]int{}}
	var times []time.Time
	add := func(at time.Time, j Job, why string) {
		if why == "" {
			if err := j.Check(); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			out.Skipped[why]++
			return
		}
		out.Jobs, times = append(out.Jobs, j), append(times, at)
	}
	for _, f := range files {
		if err := readFile(f, r, add, out.Skipped); err != nil {
			if named, ok := f.(interface{ Name() string }); ok {
				err = fmt.Errorf("%s: %w", named.Name(), err)
			}
			return out, err
		}
	}
	out.sort(times)
	return out, nil
}

func readFile(from io.Reader, r Reading, add adder, skipped map[string]int) error {
	b := bufio.NewReaderSize(from, 64<<10)
	head, err := b.Peek(1 << 12)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch word := bytes.TrimLeft(head, " \t\r\n"); {
	case len(word) == 0:
		return errors.New("the file is empty")
	case word[0] == '[':
		return readArray(b, r, add)
	case word[0] == '{' && isRecord(word):
		n, err := record.Read(b, func(j record.Job) { add(r.record(j)) })
		if n > 0 {
			skipped[noJob] += n
		}
		return err
	case word[0] == '{':
		return readLines(b, r, add)
	default:
		return fmt.Errorf("neither records of gpuslot nor the output of condor_history -json: it begins with %q",
			foreign.Clip(string(word)))
	}
}

// isRecord distinguishes gpuslot's lines from ads by a key that only they have.
func isRecord(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.Contains(line, []byte(`"slot":`)) && !bytes.Contains(line, []byte(`"ClusterId"`))
}

// sort orders the jobs by arrival, the first at 0.
func (r *Recorded) sort(times []time.Time) {
	order := make([]int, len(times))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return times[a].Compare(times[b]) })
	jobs := make([]Job, len(order))
	for to, from := range order {
		jobs[to] = r.Jobs[from]
		jobs[to].Arrival = min(times[from].Sub(times[order[0]]), maxSpan)
	}
	r.Jobs = jobs
}

// maxSpan keeps times within what a Duration holds.
const maxSpan = time.Duration(math.MaxInt64 / 2)

// record is a job of gpuslot's records. They do not say when it came, only when it began.
func (r Reading) record(j record.Job) (time.Time, Job, string) {
	took := j.Seconds()
	out := Job{Name: j.Job, Owner: j.Owner, Group: j.Group, GPUs: 1, CPUs: 1, Work: r.Work}
	if took <= 0 {
		return j.Begin, out, neverRan
	}
	q := j.Requested
	out.CPUs = int(bounded(q.CPUs, 1))
	out.GPUs = max(1, int(bounded(q.GPUs, 1)))
	out.Memory, out.VRAM = gpu.MiB(boundedInt(q.MemoryMiB)), gpu.MiB(boundedInt(q.VRAMMiB))
	out.Peak = gpu.MiB(boundedInt(j.PeakMiB))
	r.ask(&out)
	out.Seconds, out.Dead = max(0, took-r.Dead), min(r.Dead, took)
	if j.IdleSeconds != nil && !j.Partial {
		out.Kernel = fraction(took-*j.IdleSeconds, out.Seconds)
	}
	if j.SM.Estimate != nil && !j.Partial {
		out.SM = fraction(*j.SM.Estimate, out.Seconds*out.Kernel)
	}
	if j.DRAMSeconds != nil && !j.Partial {
		out.Bandwidth = fraction(*j.DRAMSeconds, out.Seconds*out.Kernel)
	}
	return j.Begin, out, ""
}

// ask fills in the request of a job that had none.
func (r Reading) ask(j *Job) {
	if j.VRAM == 0 && j.Peak > 0 {
		j.VRAM = gpu.MiB(min(float64(maxAmount), math.Ceil(float64(j.Peak)*max(1, r.Margin))))
	}
}

func fraction(of, all float64) float64 {
	if all <= 0 || math.IsNaN(of) {
		return 0
	}
	return min(max(of/all, 0), 1)
}

func bounded(p *float64, otherwise float64) float64 {
	if p == nil || math.IsNaN(*p) {
		return otherwise
	}
	return min(max(*p, 0), float64(maxAmount))
}

func boundedInt(p *int64) int64 {
	if p == nil {
		return 0
	}
	return min(max(*p, 0), int64(maxAmount))
}
