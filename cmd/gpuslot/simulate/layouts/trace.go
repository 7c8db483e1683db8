package layouts

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Bounds of a trace.
const (
	// MaxJobs is the most in one trace.
	MaxJobs    = 1_000_000
	maxSeconds = 1e9
	maxMemory  = gpu.MiB(1 << 30)
	maxSMs     = 1 << 20
)

// check returns what is wrong with a job.
func (j Job) check() error {
	const most = time.Duration(maxSeconds) * time.Second
	switch {
	case j.Arrival < 0 || j.Arrival > most:
		return fmt.Errorf("arrival %s: it is 0 to %s", j.Arrival, most)
	case j.Duration <= 0 || j.Duration > most:
		return fmt.Errorf("duration %s: it is above 0, up to %s", j.Duration, most)
	case j.Memory < 0 || j.Memory > maxMemory || j.Multiprocessors < 0 || j.Multiprocessors > maxSMs:
		return fmt.Errorf("%d MiB of VRAM and %d SMs are no need of a job", j.Memory, j.Multiprocessors)
	case (j.Profile == "") == (j.Memory == 0 && j.Multiprocessors == 0):
		return errors.New("a job names either a profile, or the VRAM or SMs that it needs")
	}
	return nil
}

// columns of a CSV trace, and keys of JSON lines.
var columns = []string{"arrival", "duration", "profile", "vram", "sms"}

// byteOrderMark is what spreadsheets begin a CSV file with.
const byteOrderMark = "\ufeff"

// ReadTrace reads jobs, as CSV with a header line of some of the columns arrival,
// duration (seconds), profile, vram (MiB), sms; or as JSON lines with these keys.
// An error names the line.
func ReadTrace(r io.Reader) (Trace, error) {
	b := bufio.NewReader(r)
	if head, _ := b.Peek(len(byteOrderMark)); string(head) == byteOrderMark {
		_, _ = b.Discard(len(head)) // what was peeked is there
	}
	for {
		c, err := b.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the trace is empty; it is CSV that begins with arrival,duration,profile, or JSON lines")
		}
		if err != nil {
			return nil, err
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			continue
		}
		_ = b.UnreadByte() // after a ReadByte it cannot fail
		if c == '{' {
			return readJSON(b)
		}
		return readCSV(b)
	}
}

func readCSV(r io.Reader) (t Trace, err error) {
	c := csv.NewReader(r)
	c.TrimLeadingSpace, c.ReuseRecord, c.Comment = true, true, '#'
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	header = slices.Clone(header)
	for i, h := range header {
		if !slices.Contains(columns, h) || slices.Contains(header[:i], h) {
			return nil, fmt.Errorf("trace: column %q in the header: it has each of %s once at most", h,
				strings.Join(columns, ", "))
		}
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		line, _ := c.FieldPos(0)
		j, err := jobOf(header, row)
		if err == nil {
			err = j.check()
		}
		if err == nil && len(t) == MaxJobs {
			err = fmt.Errorf("more than %d jobs", MaxJobs)
		}
		if err != nil {
			return nil, fmt.Errorf("trace line %d: %w", line, err)
		}
		t = append(t, j)
	}
}

func jobOf(header, row []string) (j Job, err error) {
	for i, h := range header {
		v := strings.TrimSpace(row[i])
		if v == "" {
			continue
		}
		switch h {
		case "arrival":
			j.Arrival, err = seconds(v)
		case "duration":
			j.Duration, err = seconds(v)
		case "profile":
			j.Profile = v
		case "vram":
			var n int64
			n, err = strconv.ParseInt(v, 10, 64)
			j.Memory = gpu.MiB(n)
		case "sms":
			j.Multiprocessors, err = strconv.Atoi(v)
		}
		if err != nil {
			return Job{}, fmt.Errorf("%s %q is not a number", h, v)
		}
	}
	return j, nil
}

func seconds(s string) (time.Duration, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, err
	}
	return duration(f)
}

// duration of so many seconds, to the millisecond.
func duration(f float64) (time.Duration, error) {
	if math.IsNaN(f) || math.Abs(f) > maxSeconds {
		return 0, fmt.Errorf("%g is no time in seconds", f)
	}
	return time.Duration(math.Round(f*1000)) * time.Millisecond, nil
}

// record is a job as a JSON line has it.
type record struct {
	Arrival         float64 `json:"arrival"`
	Duration        float64 `json:"duration"`
	Profile         string  `json:"profile"`
	Memory          gpu.MiB `json:"vram"`
	Multiprocessors int     `json:"sms"`
}

func readJSON(r io.Reader) (t Trace, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		j, err := jobOfJSON(text)
		if err == nil && len(t) == MaxJobs {
			err = fmt.Errorf("more than %d jobs", MaxJobs)
		}
		if err != nil {
			return nil, fmt.Errorf("trace line %d: %w", n, err)
		}
		t = append(t, j)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

func jobOfJSON(text []byte) (Job, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var r record
	if err := d.Decode(&r); err != nil {
		return Job{}, err
	}
	if d.More() {
		return Job{}, errors.New("more than one job in a line")
	}
	arrival, err := duration(r.Arrival)
	if err != nil {
		return Job{}, err
	}
	lasts, err := duration(r.Duration)
	if err != nil {
		return Job{}, err
	}
	j := Job{Arrival: arrival, Duration: lasts, Profile: r.Profile, Memory: r.Memory, Multiprocessors: r.Multiprocessors}
	return j, j.check()
}

// WriteCSV writes the trace as ReadTrace reads it.
func (t Trace) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write(columns) // Flush keeps the error
	for _, j := range t {
		row := []string{decimal(j.Arrival), decimal(j.Duration), j.Profile, "", ""}
		if j.Profile == "" {
			row[3], row[4] = strconv.FormatInt(int64(j.Memory), 10), strconv.Itoa(j.Multiprocessors)
		}
		_ = c.Write(row)
	}
	c.Flush()
	return c.Error()
}

func decimal(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
