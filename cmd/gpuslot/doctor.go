package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// The exit codes of doctor besides exitOK and exitError.
const (
	exitWarnings = 3
	exitFindings = 4
)

// level is how bad a finding is.
type level string

// The levels. What could not be asked is a warning: it is not ok.
const (
	levelOK      level = "ok"
	levelNote    level = "note"
	levelWarning level = "warning"
	levelError   level = "error"
)

// rank orders levels, the worst first.
func (l level) rank() int {
	return slices.Index([]level{levelError, levelWarning, levelNote, levelOK}, l)
}

// finding is what one check found: what, why it matters, the exact change.
type finding struct {
	Level level  `json:"level"`
	Check string `json:"check"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`
	Do    string `json:"do,omitempty"`
}

// unchecked is the finding of a check that could not be made.
func unchecked(check, because, do string) []finding {
	return []finding{{levelWarning, check, "not checked: " + because, "", do}}
}

// fine is the finding of a check that found nothing.
func fine(check, format string, args ...any) []finding {
	return []finding{{Level: levelOK, Check: check, What: fmt.Sprintf(format, args...)}}
}

func doctorCommand(f *flags) *cobra.Command {
	var asJSON bool
	var jobUser string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with this node, and say what to change",
		Long: `doctor reads the node and changes nothing: driver and GPUs, the agent, the
control daemons, HTCondor's version, slots and configuration. Each finding says
what, why it matters, and the exact change.

  error     jobs do not run, or run without what gpuslot promises
  warning   something is to be changed, or could not be checked
  note      how it is, and what that means
  ok        checked, nothing found

Not only root may run it, but the agent and the limits of its control daemons
tell only root; what could not be asked is "not checked", which is a warning.

With --job it also submits one small GPU job as that user, for this machine, and
looks whether HTCondor does what gpuslot builds on: the cgroup's name, the hook,
the supervisor, the scratch directory, the environment; on an observed node,
whether the job has nothing of gpuslot and the agent keeps a record of it. Do so
after an upgrade of HTCondor; it needs an access point on this machine.

Exit codes: 0 nothing worse than a note, 1 doctor itself could not run, 3 the
worst is a warning, 4 the worst is an error.`,
		Example: `  gpuslot doctor
  gpuslot doctor --job alice
  gpuslot doctor --json | jq '.[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			run, err := contractRunner(jobUser)
			if err != nil {
				return err
			}
			facts, err := gatherFacts(c.Context(), c, f)
			if err != nil {
				return err
			}
			if run != nil {
				facts.job = run.job(c.Context(), c.ErrOrStderr(), facts)
			}
			if err := c.Context().Err(); err != nil {
				return err // what was asked since is not known for another reason
			}
			found := diagnose(facts)
			if asJSON {
				if err := show.JSON(c.OutOrStdout(), found); err != nil {
					return err
				}
			} else {
				printFindings(c.OutOrStdout(), found)
			}
			return worstOf(found)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&jobUser, "job", "", "run one small GPU job here as `user`, and look at what HTCondor gives it")
	return c
}

// diagnose makes every check, the worst findings first.
func diagnose(f facts) []finding {
	checks := []func(facts) []finding{
		checkConfiguration, checkAgent, checkWalls, checkGuards, checkVersion, checkIDs, checkHooks, checkWrappers,
		checkPersistence, checkMIG, checkUVM, checkOpenFiles, checkTenancy, checkScratch, checkSharedMemory,
		checkInventory, checkStartds, checkHiding, checkAccounts, checkJobExit, checkContainers, checkAccessPoint, checkSELinux, checkContract, checkRoot,
	}
	if f.planErr == nil && f.plan.Observe {
		checks = observedChecks()
	}
	var found []finding
	for _, check := range checks {
		found = append(found, check(f)...)
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return found
}

// worstOf turns the worst finding into the exit code.
func worstOf(found []finding) error {
	worst := levelOK
	for _, f := range found {
		if f.Level.rank() < worst.rank() {
			worst = f.Level
		}
	}
	switch worst {
	case levelError:
		return quits{nil, exitFindings}
	case levelWarning:
		return quits{nil, exitWarnings}
	}
	return nil
}

// together makes one finding of those that differ in their checks alone.
func together(found []finding) []finding {
	type text struct {
		level         level
		what, why, do string
	}
	checks := map[text][]string{}
	var out []finding
	for _, f := range found {
		key := text{f.Level, f.What, f.Why, f.Do}
		if checks[key] = append(checks[key], f.Check); len(checks[key]) == 1 {
			out = append(out, f)
		}
	}
	for i, f := range out {
		if names := checks[text{f.Level, f.What, f.Why, f.Do}]; len(names) > 1 {
			out[i].Check = fmt.Sprintf("%d checks", len(names))
			out[i].What = fmt.Sprintf("%s: %s", f.What, strings.Join(names, ", "))
		}
	}
	return out
}

func printFindings(w io.Writer, found []finding) {
	var t show.Table
	counts := map[level]int{}
	for _, f := range found {
		counts[f.Level]++
	}
	for _, f := range together(found) {
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
	for _, l := range []level{levelError, levelWarning, levelNote, levelOK} {
		sums = append(sums, fmt.Sprintf("%s %d", l, counts[l]))
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(sums, ", "))
}
