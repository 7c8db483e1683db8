package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// counts are the tests of one run or several, those within others too.
type counts struct {
	Ran     int
	Skipped []skip
	Failed  []failure
	// Figures are what passed tests logged as t.Logf("figure: …"): numbers with an aim.
	Figures []string
}

// skip is a test that was skipped; Why is its own reason.
type skip struct{ Package, Test, Why string }

// failure is a test that failed and none within it did; Said are the last lines that it logged. Without
// a test it is a package that did not build or ended before its tests.
type failure struct {
	Package, Test string
	Said          []string
}

func (f failure) String() string {
	line := "failed: " + strings.TrimPrefix(f.Package, "github.com/gpuslot/gpuslot/")
	if f.Test == "" {
		return line + ", its output is above"
	}
	return strings.Join(append([]string{line + " " + f.Test}, f.Said...), "\n    ")
}

func newCounts() counts { return counts{Skipped: []skip{}} }

var reasonLine = regexp.MustCompile(`^\s*\S+\.go:[0-9]+: (.*)`)

var figureLine = regexp.MustCompile(`(?m)^\s*\S+\.go:[0-9]+: figure: (.*)$`)

// book counts a test that ended; text is its output.
func (c *counts) book(e event, text string) {
	if e.Action != "skip" {
		c.Ran++
		if e.Action == "fail" {
			c.fail(e, text)
		}
		for _, m := range figureLine.FindAllStringSubmatch(text, -1) {
			c.Figures = append(c.Figures, m[1])
		}
		return
	}
	s := skip{Package: e.Package, Test: e.Test, Why: "no reason given"}
	for line := range strings.Lines(text) {
		if m := reasonLine.FindStringSubmatch(line); m != nil {
			s.Why = m[1]
		}
	}
	c.Skipped = append(c.Skipped, s)
}

// fail books a test that failed, unless one within it did, which ended before.
func (c *counts) fail(e event, text string) {
	if slices.ContainsFunc(c.Failed, func(f failure) bool {
		return f.Package == e.Package && strings.HasPrefix(f.Test, e.Test+"/")
	}) {
		return
	}
	f := failure{Package: e.Package, Test: e.Test}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); reasonLine.MatchString(line) {
			f.Said = append(f.Said, shortened(line, 300))
		}
	}
	f.Said = f.Said[max(0, len(f.Said)-12):]
	c.Failed = append(c.Failed, f)
}

func shortened(line string, most int) string {
	if len(line) > most {
		return line[:most] + "…"
	}
	return line
}

// String is the closing line: "N ran, M skipped: how many for which reason".
func (c counts) String() string {
	text := fmt.Sprintf("%d ran, %d skipped", c.Ran, len(c.Skipped))
	why := map[string]int{}
	for _, s := range c.Skipped {
		why[s.Why]++
	}
	reasons := slices.SortedFunc(maps.Keys(why), func(a, b string) int {
		return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b))
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", why[r], r)
	}
	if len(reasons) > 0 {
		text += ": " + strings.Join(reasons, "; ")
	}
	return text
}

// mustRun are the packages whose tests need a node, a driver or a browser.
// Continuous integration has root, namespaces, cgroups and Debian's mirror.
var mustRun = regexp.MustCompile(`/gpuslot/(test/(alone|driver|faults|mig|node|packages|pictures|scenes|sim|usage)|systemd|mps|condor|gpu/cuda)$`)

// mayLack are the reasons that are good ones there too.
var mayLack = []*regexp.Regexp{
	regexp.MustCompile(`make campaign`),                         // it takes long
	regexp.MustCompile(`does not offer driver|no longer lists`), // Debian's mirror drops versions
	regexp.MustCompile(`this clone has no git history`),         // for a package of an older commit
	regexp.MustCompile(`no apptainer`),                          // Debian has it in sid only
	regexp.MustCompile(`major number \d+ belongs to a driver`),  // a machine with a GPU
	regexp.MustCompile(`getfacl is not installed`),
	regexp.MustCompile(`systemd-analyze`), // the node's own is asked besides
	regexp.MustCompile(`the other leg does both|came with 555|no value of a variable|has no flag to give`),
	regexp.MustCompile(`the sanitizers' runtime lies`),
	regexp.MustCompile(`cgroup v2`), // where the machine has no unified hierarchy to write to
}

// lacking are the tests that were skipped and must not be in CI.
func (c counts) lacking() []failure {
	var out []failure
	for _, s := range c.Skipped {
		may := slices.ContainsFunc(mayLack, func(r *regexp.Regexp) bool { return r.MatchString(s.Why) })
		if mustRun.MatchString(s.Package) && !may {
			out = append(out, failure{s.Package, s.Test, []string{"skipped, and CI has to run it: " + s.Why}})
		}
	}
	return out
}
