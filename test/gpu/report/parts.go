package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Part is what became of one part of the harness.
type Part struct {
	Name      string `json:"part"`
	Simulated bool   `json:"simulated"`
	// Doubts are why it is marked as simulated.
	Doubts []string `json:"doubts,omitempty"`
	GPU    string   `json:"gpu"`
	Driver string   `json:"driver"`
	CUDA   string   `json:"cuda"`
	// Began and Seconds are when and how long.
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Left: nothing of the machine was changed, and no process was left.
	Left bool `json:"left_as_it_was"`
	// Error is what went wrong; empty for nothing.
	Error string `json:"error"`
}

const partSuffix = ".part.json"

// Write keeps it in a directory.
func (p Part) Write(dir string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.Name+partSuffix), append(b, '\n'), 0o644)
}

// readParts reads those that were written to dir.
func readParts(dir string) (out []Part, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+partSuffix))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range files {
		var p Part
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f, err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// tableParts says what was done and what went wrong: a report of half the parts
// must not read as one of all.
func tableParts(b *strings.Builder, parts []Part) {
	if len(parts) == 0 {
		return
	}
	b.WriteString("| part | took [s] | left the machine as it was | went wrong |\n|---|---|---|---|\n")
	for _, p := range parts {
		left := "yes"
		if !p.Left {
			left = "**no**"
		}
		wrong := strings.NewReplacer("|", `\|`, "\n", " / ").Replace(p.Error)
		fmt.Fprintf(b, "| %s | %.0f | %s | %s |\n", p.Name, p.Seconds, left, wrong)
	}
	b.WriteByte('\n')
}
