package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/test/gpu/evidence"
	"github.com/gpuslot/gpuslot/test/gpu/report"
)

// part is one of the things to do.
type part struct {
	name, what string
	// limit is the time that it takes at most, usual about how long with a driver,
	// least the time without which it is not begun.
	limit, usual, least time.Duration
	// mps: it needs a control program. always: each call makes it.
	mps, always bool
	// trials are those of the harness that it is made of, and dir is where they go.
	trials []string
	dir    string
	make   func(ctx context.Context, c *call, t trying) error
}

// trying is what one attempt has.
type trying struct {
	budget   time.Duration
	mps      bool
	progress *progress
}

// plan is everything, in order of worth: short parts first, and the long ones of sharing
// after all trials. The usual times are those of an H200 with driver 580.159.04 where it
// made a part to its end (docs/hardware).
func plan() []part {
	return []part{
		{
			name: "facts", what: "the machine, read only",
			limit: 60 * time.Second, usual: 10 * time.Second, always: true, make: facts,
		},
		{
			name: "nvml", what: "NVML against nvidia-smi",
			limit: 40 * time.Second, usual: time.Second, least: 10 * time.Second, make: contract,
		},
		{
			name: "dialect", what: "the control program's words, without a server",
			limit: 60 * time.Second, usual: 15 * time.Second, least: 10 * time.Second, mps: true, make: dialect,
		},
		trialsOf("limits", "truth", "limits and clients of MPS", 200*time.Second, 40*time.Second, true,
			"T1", "T18", "T0", "T2", "T5", "T6", "T4", "T7", "T3", "T12", "T9", "T13"),
		trialsOf("memory-listed", "truth", "memory that NVML lists without MPS", 30*time.Second, time.Second, false, "B1"),
		trialsOf("product", "node", "gpuslotd, hook and wrapper with jobs",
			110*time.Second, 25*time.Second, true, "N1", "N2", "N3", "N6", "N4", "N5"),
		trialsOf("accounts", "truth", "two accounts, many commands", 120*time.Second, 5*time.Second, true, "T9b", "T13b", "T14"),
		trialsOf("fatal", "truth", "kills and faults", 200*time.Second, 15*time.Second, true, "T17", "T10", "T8"),
		trialsOf("product-fault", "node", "a fault in one job of two", 150*time.Second, 5*time.Second, true, "N7"),
		trialsOf("ceiling", "truth", "how many clients there may be", 120*time.Second, 30*time.Second, true, "T15"),
		sharing("known-load", "the GPU's counters against a known load",
			20*time.Second, 60*time.Second, "-repeats", "1", "-seconds", "5"),
		sharing("sharing-mix", "a small job exclusive, in time slices and under MPS",
			90*time.Second, 150*time.Second, "-repeats", "1", "-seconds", "2", "-copies", "1,2,4,8,12"),
		// Alone such a training took 19 s, 6 of them work: all numbers of copies do not fit.
		sharing("sharing-training", "a PyTorch training", 180*time.Second, 220*time.Second, "-repeats", "1", "-copies", "1,8"),
		sharing("sharing-compute", "a job that computes", 120*time.Second, 120*time.Second, "-repeats", "1", "-seconds", "2"),
		sharing("sharing-memory", "a job that reads and writes memory",
			120*time.Second, 120*time.Second, "-repeats", "1", "-seconds", "2"),
		repeats(),
	}
}

// repeats measures the small job once more, with a spread, beside the first result.
func repeats() part {
	const limit = 200 * time.Second
	p := measured("sharing-mix", "-repeats", limit, limit, "-repeats", "3", "-seconds", "2", "-copies", "1,2,4,8,12")
	p.name, p.what = "sharing-mix-repeats", "the small job three times, for a spread"
	return p
}

// trialsOf is a part of trials of the harness; what it left is known by the files.
func trialsOf(name, dir, what string, limit, usual time.Duration, mps bool, ids ...string) part {
	p := part{
		name: name, what: what, limit: limit, usual: usual, least: 20 * time.Second,
		mps: mps, trials: ids, dir: dir,
	}
	p.make = func(ctx context.Context, c *call, t trying) error {
		args := []string{"-only", strings.Join(c.notMade(p), ","), "-suffix", "-" + name}
		if dir == "node" {
			args = append(args, "-measure", c.scaled(5*time.Second).String())
		}
		return c.harness(ctx, t, dir, args...)
	}
	return p
}

// sharing is a part that gpuslot bench measures.
func sharing(name, what string, usual, limit time.Duration, args ...string) part {
	p := measured(name, "", usual, limit, args...)
	p.name, p.what = name, what
	return p
}

// measured is a part of the harness whose results have a suffix. An attempt after one
// that was cut has a name of its own, so that what that one found stays, and measures
// what that one had no time for.
func measured(name, suffix string, usual, limit time.Duration, args ...string) part {
	p := part{limit: limit, usual: usual, least: min(usual+grace, 60*time.Second)}
	place := func(attempt int) string {
		if attempt > 1 {
			return suffix + "-try" + strconv.Itoa(attempt)
		}
		return suffix
	}
	p.make = func(ctx context.Context, c *call, t trying) error {
		args := slices.Clone(args)
		if i := slices.Index(args, "-seconds"); i >= 0 && c.scale < 1 {
			args[i+1] = "0.3"
		}
		if !t.mps {
			args = append(args, "-modes", "exclusive,timeslice")
		}
		tries := t.progress.Tries
		if tries > 1 {
			args = append(args, "-after", name+place(tries-1))
		}
		err := c.harness(ctx, t, name, append(args, "-suffix", place(tries))...)
		r, unread := bench.Read(filepath.Join(c.raw, name+place(tries)))
		if left := report.Left(r); unread == nil && len(left) > 0 {
			return fmt.Errorf("%w: copies %v", errCut, left)
		}
		return err
	}
	return p
}

// grace is how long a part has to end what it started, after its own limit.
const grace = 20 * time.Second

func (c *call) harness(ctx context.Context, t trying, name string, args ...string) error {
	limit := max(t.budget-c.scaled(grace), t.budget/2)
	first := []string{"-out", c.raw, "-limit", limit.Round(time.Millisecond).String()}
	return c.child(ctx, t.budget, name, nil, c.program("harness"), append(append(first, args...), name)...)
}

func contract(ctx context.Context, c *call, t trying) error {
	return c.child(ctx, t.budget, "nvml", nil, c.program("nvml.test"),
		"-test.v", "-test.run", "^TestContract$", "-test.timeout", t.budget.String())
}

func dialect(ctx context.Context, c *call, t trying) error {
	// A pipe directory has 87 bytes at most, so its own is not below a long TMPDIR.
	env := []string{
		"GPUSLOT_MPS_CONTROL=" + c.driver.Files[evidence.Control].Path, "TMPDIR=/tmp", "GPUSLOT_GPU=" + string(c.gpu),
	}
	return c.child(ctx, t.budget, "dialect", env, c.program("mps.test"),
		"-test.v", "-test.run", "^(TestMatrix|TestRubbishOnItsSocket)$", "-test.timeout", t.budget.String())
}

// errCut: a part did not end in its time.
var errCut = errors.New("its time was over")

// child runs a program with its output in logs/NAME-CALL.txt. It is told to end
// before its budget is over, and killed when it is.
func (c *call) child(ctx context.Context, budget time.Duration, name string, env []string, program string, args ...string) error {
	log := filepath.Join(c.raw, "logs", fmt.Sprintf("%s-%d.txt", name, c.state.Calls))
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(f, "$", filepath.Base(program), strings.Join(args, " "))
	last := c.scaled(grace) / 3
	timed, cancel := context.WithTimeout(ctx, budget-last)
	defer cancel()
	cmd := exec.CommandContext(timed, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.raw, f, f
	cmd.Env = append(append(os.Environ(), env...), marker+"="+c.state.ID)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = max(last, time.Second)
	err = cmd.Run()
	if err != nil && timed.Err() != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	if err != nil {
		return fmt.Errorf("%w: see logs/%s", err, filepath.Base(f.Name()))
	}
	return nil
}

// table prints the parts: what they are, and how long they take.
func table(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%-20s %6s %7s  %s\n", "part", "usual", "at most", "what")
	for _, p := range plan() {
		needs := ""
		if p.mps {
			needs = " (needs MPS)"
		}
		_, e := fmt.Fprintf(w, "%-20s %4.0f s %5.0f s  %s%s %s\n", p.name, p.usual.Seconds(), p.limit.Seconds(), p.what, needs, strings.Join(p.trials, ","))
		err = errors.Join(err, e)
	}
	return err
}
