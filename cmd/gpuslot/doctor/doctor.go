// Package doctor looks for what is wrong with a node, and says what to change. It
// reads facts from the node, the agent and HTCondor; its checks are pure.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Node is the node to look at.
type Node struct {
	// Config is the configuration, the default one if ConfigErr says that it cannot
	// be read.
	Config    config.Config
	ConfigErr error
	// Socket is the agent's.
	Socket string
}

// Examine reads the node and makes every check; it changes nothing. With a jobUser it
// also runs a small GPU job as that account, and writes to progress what it waits for.
// The worst findings come first.
func Examine(ctx context.Context, n Node, jobUser string, progress io.Writer) ([]Finding, error) {
	run, err := contractRunner(jobUser)
	if err != nil {
		return nil, err
	}
	f := gatherFacts(ctx, n)
	if run != nil {
		f.job = run.job(ctx, progress, f)
	}
	return diagnose(f), nil
}

// Level is how bad a finding is.
type Level string

// The levels. What could not be asked is a warning: it is not ok.
const (
	OK      Level = "ok"
	Note    Level = "note"
	Warning Level = "warning"
	Error   Level = "error"
)

// rank orders levels, the worst first.
func (l Level) rank() int {
	return slices.Index([]Level{Error, Warning, Note, OK}, l)
}

// Finding is what one check found: what, why it matters, the exact change.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
}

// unchecked is the finding of a check that could not be made.
func unchecked(check, because, do string) []Finding {
	return []Finding{{Warning, check, "not checked: " + because, "", do}}
}

// fine is the finding of a check that found nothing.
func fine(check, format string, args ...any) []Finding {
	return []Finding{{Level: OK, Check: check, What: fmt.Sprintf(format, args...)}}
}

// diagnose makes every check, the worst findings first.
func diagnose(f facts) []Finding {
	checks := []func(facts) []Finding{
		checkConfiguration, checkAgent, checkEnforcement, checkGuards, checkVersion, checkIDs, checkHooks, checkWrappers,
		checkDriver, checkPersistence, checkMIG, checkUVM, checkOpenFiles, checkTenancy, checkScratch, checkSharedMemory,
		checkInventory, checkStartds, checkHiding, checkAccounts, checkJobExit, checkContainers, checkRenders, checkOutside,
		checkAccessPoint, checkSELinux, checkContract, checkRoot,
	}
	if f.planErr == nil && f.plan.Observe {
		checks = observedChecks()
	}
	var found []Finding
	for _, check := range checks {
		found = append(found, check(f)...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return found
}

// Worst is the level of the worst finding; OK if there is none.
func Worst(found []Finding) Level {
	worst := OK
	for _, f := range found {
		if f.Level.rank() < worst.rank() {
			worst = f.Level
		}
	}
	return worst
}

// together makes one finding of those that differ in their checks alone.
func together(found []Finding) []Finding {
	type text struct {
		level         Level
		what, why, do string
	}
	checks := map[text][]string{}
	var out []Finding
	for _, f := range found {
		key := text{f.Level, f.What, f.Why, f.Do}
		if checks[key] = append(checks[key], f.Check); len(checks[key]) == 1 {
			out = append(out, f)
		}
	}
	for i, f := range out {
		if names := checks[text{f.Level, f.What, f.Why, f.Do}]; len(names) > 1 {
			out[i].Check = fmt.Sprintf("%d checks", len(names))
			out[i].What = f.What + "\nthe checks: " + strings.Join(names, ", ")
		}
	}
	return out
}

// Print writes findings for people, and how many lines there are of each level.
func Print(w io.Writer, found []Finding) {
	var t show.Table
	counts := map[Level]int{}
	for _, f := range together(found) {
		counts[f.Level]++
		for i, line := range strings.Split(f.What, "\n") {
			if i == 0 {
				t.Row(string(f.Level), f.Check, line)
			} else {
				t.Row("", "", line)
			}
		}
		if f.Why != "" {
			t.Row("", "", "why: "+f.Why)
		}
		if f.Do != "" {
			t.Row("", "", "do:  "+f.Do)
		}
	}
	t.Print(w)
	var sums []string
	for _, l := range []Level{Error, Warning, Note, OK} {
		sums = append(sums, fmt.Sprintf("%s %d", l, counts[l]))
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(sums, ", "))
}
