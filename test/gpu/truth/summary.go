package truth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Read reads the outcomes of these trials from a directory, and judges them again
// by today's claims. Its error tells of what cannot be read, beside the others.
func Read(dir string, trials []Trial) ([]Outcome, error) {
	var out []Outcome
	var errs []error
	for _, t := range trials {
		b, err := os.ReadFile(filepath.Join(dir, t.ID+".json"))
		if os.IsNotExist(err) {
			continue
		}
		var o Outcome
		if err == nil {
			err = json.Unmarshal(b, &o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.json: %w", t.ID, err))
			continue
		}
		o.Findings = Judge(t.Claims, o.Values)
		out = append(out, o)
	}
	return out, errors.Join(errs...)
}

// Summary writes the outcomes as a page of Markdown.
func Summary(w io.Writer, title string, outcomes []Outcome) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", title)
	if len(outcomes) > 0 {
		o := outcomes[0]
		if o.Simulated {
			b.WriteString("**SIMULATED: no GPU was there; this shows that the harness works and nothing else.**\n\n")
		}
		fmt.Fprintf(&b, "%s, driver %s. The raw words stand in the `.json` files beside this page.\n\n", o.GPU, o.Driver)
	}
	for _, o := range outcomes {
		o.section(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o Outcome) section(b *strings.Builder) {
	fmt.Fprintf(b, "## %s: %s\n\n", o.ID, o.Title)
	if o.NotDone != "" {
		fmt.Fprintf(b, "Not done: %s.\n\n", o.NotDone)
	}
	if o.Err != "" {
		fmt.Fprintf(b, "It ended early: %s.\n\n", o.Err)
	}
	if len(o.Findings) > 0 && o.NotDone == "" {
		b.WriteString("| verdict | claim |\n|---|---|\n")
		for _, f := range o.Findings {
			fmt.Fprintf(b, "| %s | %s |\n", f.Verdict, strings.ReplaceAll(f.Claim, "|", `\|`))
		}
		b.WriteByte('\n')
	}
	if len(o.Values) > 0 {
		b.WriteString("| value | |\n|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(o.Values)) {
			text := strings.NewReplacer("|", `\|`, "\n", " / ").Replace(fmt.Sprint(o.Values[name]))
			fmt.Fprintf(b, "| %s | %s |\n", name, text)
		}
		b.WriteByte('\n')
	}
}
