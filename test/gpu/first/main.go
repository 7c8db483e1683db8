// Command first spends the first minutes on a machine with a GPU: it makes the
// parts of the harness in order of worth, each with a limit, all before one
// deadline, and packs what is there into one file again and again, so that a cut
// loses nothing. It lies in the folder that "make gpu-bundle" makes; first.sh
// starts it. Start at plan.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/evidence"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "first.sh:", err)
		os.Exit(1)
	}
}

// call is one run of first.sh.
type call struct {
	// programs holds the programs, bundle is the folder that they came from.
	programs, bundle string
	// out takes results.tgz, raw everything that is packed into it.
	out, raw string
	deadline time.Duration
	// scale is 1, and less in rehearsals: all times are multiplied by it.
	scale float64
	began int64
	rest  bool
	table bool
	// home is a results.tgz to read, into the directory that takes the page.
	home, into string

	gpu    gpu.UUID // the first of this machine, empty if the inventory cannot be had
	end    time.Time
	state  state
	driver evidence.Driver
	log    io.Writer
}

func run(ctx context.Context, args []string, w io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := &call{log: w}
	flags := flag.NewFlagSet("first", flag.ContinueOnError)
	flags.StringVar(&c.programs, "programs", filepath.Dir(self), "the `directory` of the programs")
	flags.StringVar(&c.bundle, "bundle", filepath.Dir(self), "the `directory` that the programs came from")
	flags.StringVar(&c.out, "out", "", "the `directory` that takes results.tgz")
	flags.StringVar(&c.raw, "raw", rawDirectory(), "the `directory` of all results, between calls")
	flags.DurationVar(&c.deadline, "deadline", 570*time.Second, "the `time` after which the machine may be taken away")
	flags.Float64Var(&c.scale, "scale", 1, "rehearsal: multiply all limits by this `factor`, below 1")
	flags.Int64Var(&c.began, "began", 0, "when first.sh began, in `seconds` since 1970")
	flags.BoolVar(&c.rest, "rest", false, "make what an earlier call left")
	flags.BoolVar(&c.table, "table", false, "print the parts with their limits, and end")
	flags.StringVar(&c.home, "home", "", "make a page of this results.tgz `file`, and end")
	flags.StringVar(&c.into, "into", "", "with -home: the `directory` for the page (docs/hardware; dist/simulated if simulated)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.home != "" {
		return c.bringHome()
	}
	if c.table {
		return table(w)
	}
	if c.out == "" || flags.NArg() > 0 {
		return errors.New("name the directory for results: bash first.sh OUT")
	}
	if c.scale <= 0 || c.scale > 1 {
		return errors.New("-scale is above 0 and at most 1")
	}
	start := time.Now()
	if c.began > 0 {
		start = time.Unix(c.began, 0)
	}
	c.end = start.Add(c.scaled(c.deadline))
	return c.make(ctx)
}

// scaled is a time in this call.
func (c *call) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * c.scale) }

// rawDirectory outlives a call, so that the next one on the machine goes on.
func rawDirectory() string {
	return filepath.Join("/var/tmp", fmt.Sprintf("gpuslot-first-%d", os.Getuid()))
}

// noted is how long the end of a call may take: the report, the last pack, the last line.
const noted = 12 * time.Second

func (c *call) make(ctx context.Context) error {
	if err := c.findGPU(ctx); err != nil {
		return err
	}
	if err := c.open(); err != nil {
		return err
	}
	name := filepath.Join(c.raw, fmt.Sprintf("first-%d.txt", c.state.Calls))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	c.log = io.MultiWriter(c.log, f)
	stopPacking := c.keepPacking()
	defer stopPacking()
	c.endLeftovers()
	c.driver = evidence.Here(ctx).Look()
	c.state.Doubts = union(c.state.Doubts, c.driver.Doubts) // of any call
	for _, doubt := range c.driver.Doubts {
		c.say("SIMULATED: %s", doubt)
	}
	c.findMPS()
	c.parts(ctx)
	c.report(ctx)
	return c.finish()
}

func (c *call) say(format string, args ...any) { fmt.Fprintf(c.log, format+"\n", args...) }

func (c *call) program(name string) string { return filepath.Join(c.programs, name) }

// findGPU ends a call on a machine without any GPU at once. A driver that is
// loaded and does not answer is worth all that can be found out about it.
func (c *call) findGPU(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program("gpuslot"), "inventory", "--json")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	said := reason(out, err)
	if err == nil {
		inv, unread := gpu.DecodeInventory(bytes.NewReader(out))
		if unread == nil && len(inv.GPUs) > 0 {
			c.gpu = inv.GPUs[0].UUID
			return nil
		}
		said = "gpuslot inventory lists none"
	}
	if (evidence.Host{Device: evidence.Device}).Loaded() {
		return nil
	}
	return fmt.Errorf("this machine has no GPU to try (%s). The programs of the folder run here; start it where nvidia-smi lists a GPU", said)
}

// reason is what a program said of its failure, in one line.
func reason(out []byte, err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		out = exit.Stderr
	}
	said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return said
}

// findMPS says at once what cannot be tried.
func (c *call) findMPS() {
	control, there := c.driver.Files[evidence.Control]
	if !there {
		c.say("There is no %s on this machine: what needs MPS is left out, the rest runs.", evidence.Control)
		return
	}
	c.say("%s %s, sha256 %s, kernel module %s", control.Path, orUnknown(control.Version), control.SHA256, orUnknown(c.driver.Kernel))
}

func orUnknown(version string) string {
	if version == "" {
		return "of unknown version"
	}
	return version
}

// parts makes those that are left, in their order, while the time lasts.
func (c *call) parts(ctx context.Context) {
	_, mps := c.driver.Files[evidence.Control]
	for _, p := range plan() {
		done := c.state.part(p.name)
		if p.mps && !mps {
			done.State = impossible
			done.Error = "there is no " + evidence.Control
			continue
		}
		if done.over() && !p.always {
			continue
		}
		left := time.Until(c.end) - c.scaled(noted)
		if ctx.Err() != nil || left < c.scaled(p.least) {
			return // later parts are worth less
		}
		c.try(ctx, p, done, min(c.scaled(p.limit), left), mps)
	}
}

// try makes one part, and writes down before and after what becomes of it.
func (c *call) try(ctx context.Context, p part, done *progress, budget time.Duration, mps bool) {
	began := time.Now()
	done.State, done.Call, done.Error = running, c.state.Calls, ""
	done.Tries++
	c.save()
	c.say("%s: %s, at most %.0f s", p.name, p.what, budget.Seconds())
	err := p.make(ctx, c, trying{budget: budget, mps: mps, progress: done})
	c.endLeftovers()
	done.Seconds += time.Since(began).Seconds()
	done.State = finished
	if err != nil {
		done.State, done.Error = failed, err.Error()
	}
	if p.trials != nil {
		done.Left = c.notMade(p)
		if len(done.Left) > 0 {
			done.State = cut
		}
	}
	if errors.Is(err, errCut) {
		done.State = cut
	}
	c.say("%s: %s after %.0f s %s", p.name, done.State, time.Since(began).Seconds(), done.Error)
	c.save()
	c.pack()
}

// report makes tables of what is there; at home they can be made once more.
func (c *call) report(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.scaled(noted)/2, 2*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program("harness"), "-out", c.raw, "report")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		c.say("report: %v: %s", err, strings.TrimSpace(string(out)))
	}
}

// finish says what there is. The last line is the one that counts.
func (c *call) finish() error {
	var ran, left, wrong []string
	for _, p := range plan() {
		switch d := c.state.part(p.name); d.State {
		case finished:
			ran = append(ran, p.name)
		case impossible:
		default:
			if d.over() {
				wrong = append(wrong, p.name)
				break
			}
			left = append(left, p.name)
		}
	}
	c.save()
	line := "ran: " + list(ran)
	if len(wrong) > 0 {
		line += "; failed: " + list(wrong)
	}
	line += "; left: " + list(left)
	if len(left) > 0 {
		line += fmt.Sprintf("; for the rest: bash %s --rest %s", filepath.Join(c.bundle, "first.sh"), c.out)
	}
	if len(c.driver.Doubts) > 0 {
		line = "SIMULATED; " + line
	}
	if c.scale != 1 {
		line = fmt.Sprintf("REHEARSAL with all limits times %g; ", c.scale) + line
	}
	err := c.pack()
	c.say("%s", line)
	return errors.Join(err, c.pack())
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
