// Command harness tries gpuslot, and what it rests on, on the GPU of a machine
// that may have nothing but a driver: no Go, no HTCondor, no network. It lies in
// the folder that "make gpu-bundle" makes, beside the programs that it needs,
// writes all that it finds to one folder and leaves the machine as it was.
// Start at parts.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/gpu/evidence"
	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/report"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

const usage = `harness [flags] PART…: tries one GPU and writes what it finds

Parts, each of less than eight minutes:
  truth              what is held to be true of MPS: the list T1 to T18
  node               gpuslotd, hook and wrapper on the GPU, with jobs (root only)
  sharing-mix        what sharing gains: kernels, memory traffic and waiting by turns
  sharing-compute    … a job that computes
  sharing-memory     … a job that reads and writes memory
  sharing-training   … a small training with PyTorch
  known-load         what the GPU tells of a job that keeps half of it busy (needs no MPS)
  report             tables and plots of what the parts found (needs no GPU)

`

// machine is where the harness runs.
type machine struct {
	programs, out string
	// seconds is how long a job of the sharing parts takes alone.
	seconds float64
	repeats int
	copies  string
	inv     gpu.Inventory
	gpu     gpu.GPU
	// limit keeps a part below eight minutes, until deadline; what is left then is
	// not done, and said so.
	limit    time.Duration
	deadline time.Time
	// only are the trials to make, by id; empty for all.
	only string
	// measure is how long usage and cost are measured.
	measure time.Duration
	// suffix is added to the names of results: a second run leaves the first's.
	suffix string
	// after is the directory below out of a result of which the time left points out:
	// these are measured, of the same command.
	after string
	// modes are those that the sharing parts measure; empty for all.
	modes string
	// driver is what was found of one; with a doubt, all results are marked.
	driver evidence.Driver
	// simulated: there is a doubt.
	simulated bool
}

// parts by name.
func parts() map[string]func(context.Context, *machine) error {
	return map[string]func(context.Context, *machine) error{
		"truth":            tryTruth,
		"node":             tryNode,
		"sharing-mix":      shareMix,
		"sharing-compute":  shareCompute,
		"sharing-memory":   shareMemory,
		"sharing-training": shareTraining,
		"known-load":       shareKnown,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m := &machine{driver: evidence.Here(ctx).Look()}
	m.simulated = m.driver.Simulated()
	flags := flag.NewFlagSet("harness", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&m.programs, "programs", filepath.Dir(self), "the `directory` of the programs")
	flags.StringVar(&m.out, "out", "results", "the `directory` that everything is written to")
	flags.Float64Var(&m.seconds, "seconds", 3, "how many `seconds` a job of the sharing parts works alone, about; a training twice as long")
	flags.IntVar(&m.repeats, "repeats", 3, "how often each point is measured")
	flags.DurationVar(&m.limit, "limit", 430*time.Second, "how `long` a part takes at most; sharing parts measure all points once before any is repeated")
	flags.StringVar(&m.only, "only", "", "make only these `trials` of the parts truth and node, in this order, such as T8,T10")
	flags.StringVar(&m.suffix, "suffix", "", "a `text` to add to the names of results, so that those of an earlier run stay")
	flags.StringVar(&m.after, "after", "",
		"the `directory` below -out of a result: measure only the numbers of copies that it had no time for")
	flags.StringVar(&m.modes, "modes", "", "the `modes` that sharing parts measure, such as exclusive,timeslice (default all)")
	flags.DurationVar(&m.measure, "measure", 15*time.Second, "how `long` the part node measures usage and cost each")
	flags.StringVar(&m.copies, "copies", "", "the `numbers` of copies (default 1,2,4,8,12, and one beyond for small jobs and large ones)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, dir := range []*string{&m.programs, &m.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	names := flags.Args()
	if len(names) == 0 {
		return errors.New("name at least one part; harness -h lists them")
	}
	return m.all(ctx, names)
}

// all makes the parts. The machine must be afterwards as it was before.
func (m *machine) all(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		if name == "report" {
			errs = append(errs, report.Write(m.out))
			continue
		}
		part, ok := parts()[name]
		if !ok {
			return fmt.Errorf("there is no part %q; harness -h lists them", name)
		}
		errs = append(errs, m.part(ctx, name, part))
	}
	return errors.Join(errs...)
}

// part makes one part, and writes down what became of it, whatever that was.
func (m *machine) part(ctx context.Context, name string, part func(context.Context, *machine) error) error {
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return err
	}
	if err := m.driver.Write(m.out); err != nil {
		return err
	}
	began := time.Now()
	m.deadline = began.Add(m.limit)
	errPart, errLeft := m.watched(ctx, name, part)
	note := report.Part{
		Name: name + m.suffix, Simulated: m.simulated, Doubts: m.driver.Doubts, GPU: m.gpu.Name, Driver: m.inv.Driver, CUDA: m.inv.CUDA,
		Began: began.UTC().Truncate(time.Second), Seconds: time.Since(began).Seconds(), Left: errLeft == nil, Error: text(errors.Join(errPart, errLeft)),
	}
	m.say("%s took %.0f s", name, time.Since(began).Seconds())
	if err := errors.Join(errPart, errLeft, note.Write(m.out)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// watched makes a part in its time and looks at the machine before and after.
func (m *machine) watched(ctx context.Context, name string, part func(context.Context, *machine) error) (errPart, errLeft error) {
	before, err := m.look(ctx)
	if err == nil && len(before.Processes) > 0 {
		err = fmt.Errorf("other processes use the GPU: %v; end them first", before.Processes)
	}
	if err != nil {
		return err, nil
	}
	m.say("%s on %s, driver %s", name, m.gpu.Name, m.inv.Driver)
	release, err := m.hold(ctx)
	if err != nil {
		return err, nil
	}
	defer release()
	timed, cancel := context.WithDeadlineCause(ctx, m.deadline, errTime)
	defer cancel()
	errPart = part(timed, m)
	return errPart, m.left(context.WithoutCancel(ctx), before)
}

var errTime = errors.New("the part's time (-limit) was over")

// hold keeps the driver initialised until release: without persistence mode it
// would leave the GPU, and take seconds to come back, whenever no process has it.
func (m *machine) hold(ctx context.Context) (release func(), err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), m.program("gpusee"), string(m.gpu.UUID), "hold")
	in, err := cmd.StdinPipe() // it ends with it, and so with this process
	if err == nil {
		err = cmd.Start()
	}
	return func() { _ = in.Close(); _ = cmd.Wait() }, err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (m *machine) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (m *machine) program(name string) string { return filepath.Join(m.programs, name) }

// state is what a part must leave as it was: settings, and processes on the GPU.
type state struct {
	GPU       gpu.GPU
	Processes []int
}

// look reads the machine, and keeps the first reading beside the results.
func (m *machine) look(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.program("gpuslot"), "inventory", "--json")
	var said bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	out, err := cmd.Output()
	if err != nil {
		return state{}, fmt.Errorf("gpuslot inventory: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	if m.inv, err = gpu.DecodeInventory(strings.NewReader(string(out))); err != nil {
		return state{}, err
	}
	if len(m.inv.GPUs) == 0 {
		return state{}, errors.New("this machine has no GPU")
	}
	m.gpu = m.inv.GPUs[0]
	if err := os.WriteFile(filepath.Join(m.out, "inventory.json"), out, 0o644); err != nil {
		return state{}, err
	}
	see := exec.CommandContext(ctx, m.program("gpusee"), string(m.gpu.UUID))
	see.WaitDelay = time.Second
	line, err := see.Output()
	var seen truth.Look
	if err == nil {
		err = json.Unmarshal(line, &seen)
	}
	if err != nil {
		return state{}, fmt.Errorf("gpusee: %w", err)
	}
	s := state{GPU: m.gpu}
	for _, p := range append(seen.Compute, seen.MPS...) { // some stand in both lists
		if !slices.Contains(s.Processes, p.PID) {
			s.Processes = append(s.Processes, p.PID)
		}
	}
	return s, nil
}

// goneWithin is how long a GPU may list processes that have just ended.
const goneWithin = 10 * time.Second

// left says what is not as it was before, or that it is not known.
func (m *machine) left(ctx context.Context, before state) error {
	for deadline := time.Now().Add(goneWithin); ; time.Sleep(200 * time.Millisecond) {
		after, err := m.look(ctx)
		if err != nil {
			return fmt.Errorf("whether the machine is as it was: %w", err)
		}
		if left := difference(before, after); left == nil || time.Now().After(deadline) {
			return left
		}
	}
}

// difference says what is not as it was.
func difference(before, after state) error {
	var errs []error
	if before.GPU.ComputeMode != after.GPU.ComputeMode {
		errs = append(errs, fmt.Errorf("the compute mode was %s and is %s", before.GPU.ComputeMode, after.GPU.ComputeMode))
	}
	if before.GPU.MIGEnabled != after.GPU.MIGEnabled || len(before.GPU.MIGDevices) != len(after.GPU.MIGDevices) {
		errs = append(errs, errors.New("the MIG mode or devices changed"))
	}
	for _, pid := range after.Processes {
		if !slices.Contains(before.Processes, pid) {
			errs = append(errs, fmt.Errorf("process %d is left on the GPU", pid))
		}
	}
	return errors.Join(errs...)
}

// tryTruth makes all trials.
func tryTruth(ctx context.Context, m *machine) error {
	dir, err := os.MkdirTemp("/tmp", "gt")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := m.lend(dir); err != nil {
		return err
	}
	control, err := exec.LookPath(mps.Program)
	if err != nil {
		control = "" // trials that need MPS are then not done, and say so
	}
	l := &truth.Lab{
		GPU: m.gpu.UUID, Name: m.gpu.Name, Driver: m.inv.Driver, CUDA: m.inv.CUDA, Simulated: m.simulated,
		Programs: dir, Control: control, Dir: dir,
	}
	return truth.Run(ctx, l, m.chosen(truth.Trials()), filepath.Join(m.out, "truth"), m.tell)
}

// chosen are the trials that were asked for, in the order in which they were.
func (m *machine) chosen(all []truth.Trial) []truth.Trial {
	if m.only == "" {
		return all
	}
	var out []truth.Trial
	for _, id := range strings.Split(m.only, ",") {
		if i := slices.IndexFunc(all, func(t truth.Trial) bool { return t.ID == id }); i >= 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// tell says what came of a trial in one line.
func (m *machine) tell(o truth.Outcome) {
	count := map[truth.Verdict]int{}
	for _, f := range o.Findings {
		count[f.Verdict]++
	}
	m.say("  %-4s %5.1f s  %d hold, %d differ, %d unknown  %s %s%s", o.ID, o.Seconds, count[truth.Holds], count[truth.Differs], count[truth.Unknown], o.Title, o.NotDone, o.Err)
}

// tryNode makes the trials of the whole product.
func tryNode(ctx context.Context, m *machine) (err error) {
	if os.Getuid() != 0 {
		return errors.New("it needs root: jobs have an account of their own")
	}
	n := &node.Node{Programs: m.programs, GPU: m.gpu, Others: m.inv.GPUs[1:], Measure: m.measure}
	out := filepath.Join(m.out, "node")
	defer func() {
		err = errors.Join(err, n.Stop(), os.MkdirAll(out, 0o755), os.WriteFile(filepath.Join(out, "gpuslotd.log"), []byte(n.Log()), 0o644))
	}()
	if err := n.Start(ctx); err != nil {
		return err
	}
	l := &truth.Lab{GPU: m.gpu.UUID, Name: m.gpu.Name, Driver: m.inv.Driver, CUDA: m.inv.CUDA, Simulated: m.simulated, Programs: m.programs, Control: mps.Program}
	return truth.Run(ctx, l, m.chosen(n.Trials()), out, m.tell)
}

// lend copies the clients to where every account can run them.
func (m *machine) lend(dir string) error {
	for _, name := range []string{"gpujob", "gpusee"} {
		b, err := os.ReadFile(m.program(name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			return err
		}
	}
	return nil
}
