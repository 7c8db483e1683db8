// Package truth tries on one GPU what the project holds to be true of NVIDIA's
// MPS: limits, faults, users, namespaces. Each trial records what was done and
// said, and values; what follows from the values is judged apart, so that a
// recording can be judged again. It changes no setting of the GPU and ends all
// that it started. Start at Run; the trials are in Trials.
package truth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Trial is one question to a GPU.
type Trial struct {
	ID, Title string
	// NotDone says why it is not tried at all.
	NotDone string
	// Root: it needs other accounts or namespaces.
	Root bool
	// Serverless: it needs no MPS server.
	Serverless bool
	// Plain: it needs no MPS at all.
	Plain bool
	// Limit bounds it; 45 s if 0.
	Limit time.Duration
	// Try does it; what it learns it writes down.
	Try func(ctx context.Context, l *Lab, n *Notes) error
	// Claims are what is supposed to hold.
	Claims []Claim
}

// serverTrial is the one that says whether there can be a server at all.
const serverTrial = "T0"

// Values are what a trial measured, by name; a value that was not measured is
// not there.
type Values map[string]any

// Number is a value that is a number.
func (v Values) Number(name string) float64 {
	switch x := v[name].(type) {
	case float64:
		return x
	case int:
		return float64(x)
	}
	return -1 // no value of ours is negative; Judge asks only for values that are there
}

// Text is a value that is a text.
func (v Values) Text(name string) string {
	s, _ := v[name].(string)
	return s
}

// True tells whether a value is true.
func (v Values) True(name string) bool {
	b, _ := v[name].(bool)
	return b
}

// Claim is a sentence that the code, the documents or the simulation rest on.
type Claim struct {
	Text string
	// Needs are the values that it is about; without them it is not judged.
	Needs []string
	Holds func(Values) bool
}

// Verdict is what became of a claim.
type Verdict string

// The verdicts.
const (
	Holds   Verdict = "holds"
	Differs Verdict = "differs"
	Unknown Verdict = "unknown" // not measured
)

// Finding is a claim with its verdict.
type Finding struct {
	Claim   string  `json:"claim"`
	Verdict Verdict `json:"verdict"`
}

// Record is one thing that was said.
type Record struct {
	// Seconds since the trial began.
	Seconds float64 `json:"s"`
	// Who said it: a client by its name, "control", "nvml", "log".
	Who string `json:"who"`
	// Did is what it was told to do, Said its own words.
	Did  string `json:"did,omitempty"`
	Said string `json:"said,omitempty"`
}

// Outcome is a trial with what came of it.
type Outcome struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Simulated: no GPU was there.
	Simulated bool   `json:"simulated,omitempty"`
	GPU       string `json:"gpu"`
	Driver    string `json:"driver"`
	// NotDone or Err say why there are no values, or not all.
	NotDone string `json:"not_done,omitempty"`
	Err     string `json:"error,omitempty"`
	// Cut: the part's time ended in it, so that it is to be made once more.
	Cut      bool      `json:"cut,omitempty"`
	Seconds  float64   `json:"seconds"`
	Values   Values    `json:"values"`
	Findings []Finding `json:"findings"`
	Records  []Record  `json:"records"`
}

// Judge says of each claim whether it holds.
func Judge(claims []Claim, v Values) []Finding {
	out := []Finding{}
	for _, c := range claims {
		f := Finding{c.Text, Holds}
		for _, name := range c.Needs {
			if _, there := v[name]; !there {
				f.Verdict = Unknown
			}
		}
		if f.Verdict == Holds && !c.Holds(v) {
			f.Verdict = Differs
		}
		out = append(out, f)
	}
	return out
}

// Notes is where a trial writes. Several goroutines may.
type Notes struct {
	began   time.Time
	mu      sync.Mutex
	records []Record
	values  Values
}

func newNotes() *Notes { return &Notes{began: time.Now(), values: Values{}} }

// Record writes down that somebody did something, or said it.
func (n *Notes) Record(who, did, said string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := float64(time.Since(n.began).Milliseconds()) / 1000
	n.records = append(n.records, Record{s, who, did, said})
}

// Set writes a value down.
func (n *Notes) Set(name string, value any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.values[name] = value
}

// Run tries all trials of the list, one after the other, and writes each one's
// outcome to <id>.json in dir as soon as it is there. Tell is called with each.
// A trial that goes wrong keeps no other from being made; a context that ends
// does, and the error names those.
func Run(ctx context.Context, l *Lab, trials []Trial, dir string, tell func(Outcome)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var missing []string
	var errs []error
	noServer := false
	for _, t := range trials {
		if ctx.Err() != nil {
			missing = append(missing, t.ID)
			continue
		}
		if l.Control == "" && !t.Plain && t.NotDone == "" {
			t.NotDone = "this machine has no nvidia-cuda-mps-control"
		}
		if noServer && !t.Serverless && !t.Plain && t.NotDone == "" {
			t.NotDone = "no MPS server serves clients here, see " + serverTrial
		}
		o := l.try(ctx, t)
		noServer = noServer || t.ID == serverTrial && !o.Values.True("serves")
		tell(o)
		if o.Cut = ctx.Err() != nil && o.Err != ""; o.Cut {
			missing = append(missing, t.ID)
		}
		errs = append(errs, o.write(filepath.Join(dir, t.ID+".json")))
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("%w before these were made: -only %s", context.Cause(ctx), strings.Join(missing, ",")))
	}
	return errors.Join(errs...)
}

// write puts an outcome into a file, whole or not at all.
func (o Outcome) write(name string) error {
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// try makes one trial and ends what it started, also after an error.
func (l *Lab) try(ctx context.Context, t Trial) Outcome {
	o := Outcome{ID: t.ID, Title: t.Title, Simulated: l.Simulated, GPU: l.Name, Driver: l.Driver, NotDone: t.NotDone, Values: Values{}}
	if o.NotDone == "" && t.Root && os.Getuid() != 0 {
		o.NotDone = "it needs root: other accounts, or namespaces"
	}
	if o.NotDone == "" {
		limit := t.Limit
		if limit == 0 {
			limit = 45 * time.Second
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		n := newNotes()
		err := t.tried(ctx, l, n)
		if left := l.sweep(); left != nil {
			err = fmt.Errorf("%w; %w", errOr(err, "it ended well"), left)
		}
		if err != nil {
			o.Err = err.Error()
		}
		o.Seconds = time.Since(n.began).Seconds()
		n.mu.Lock()
		o.Values, o.Records = n.values, n.records
		n.mu.Unlock()
	}
	o.Findings = Judge(t.Claims, o.Values)
	return o
}

// tried makes a trial. What a driver says that was not thought of may be more than
// the trial is made for; that is the end of this trial alone.
func (t Trial) tried(ctx context.Context, l *Lab, n *Notes) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it broke off: %v\n%s", p, debug.Stack())
		}
	}()
	return t.Try(ctx, l, n)
}

func errOr(err error, text string) error {
	if err == nil {
		return fmt.Errorf("%s", text)
	}
	return err
}
