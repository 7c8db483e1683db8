package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/report"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// pieces is in how many a job's work is divided.
const pieces = 20

// work is a command of gpujob's with its amount, and how much one second is.
type work struct {
	word string
	// size is the first argument: percent of the multiprocessors, or MiB.
	size int
	// first is an amount to begin the search for a second's with.
	first int
}

// On an H100 of 132 multiprocessors and 50 MB of L2: eight warps keep one busy that
// does nothing but multiply and add, so computing wants 80 of them, and the parts
// that use memory read and write far more than the L2 holds.
var (
	computing = work{"compute", 60, 200}
	kernel    = work{"compute", 15, 200}
	traffic   = work{"stream", 512, 4}
)

// streaming is a job whose memory fits twelve times, with its contexts, as the
// paper's did: the numbers of copies reach to the memory's limit.
func (m *machine) streaming() work {
	return work{"stream", max(int(m.gpu.Memory)/14, traffic.size), 4}
}

// enough milliseconds tell how long a work takes: clocks rise meanwhile.
const enough = 100

// amount finds how often a work has to be done to take so many milliseconds.
func (m *machine) amount(ctx context.Context, w work, ms float64) (int, error) {
	n := w.first
	for {
		took, err := m.took(ctx, w, n)
		if err != nil {
			return 0, err
		}
		if took >= enough || n >= 1<<28 {
			return max(int(float64(n)*ms/max(took, 0.001)), 1), nil
		}
		n *= int(min(max(1.2*enough/max(took, 0.001), 2), 64))
	}
}

// took is how many milliseconds it takes, warm.
func (m *machine) took(ctx context.Context, w work, n int) (float64, error) {
	words := []string{w.word, strconv.Itoa(w.size), strconv.Itoa(n)}
	last, err := m.alone(ctx, append(append([]string{"./gpujob", "context"}, words...), words...)...)
	return last.MS, err
}

// alone runs a command without MPS and gives the last step that it tells.
func (m *machine) alone(ctx context.Context, command ...string) (last truth.Line, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.WaitDelay = m.programs, 5*time.Second
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+string(m.device()), "CUDA_MPS_PIPE_DIRECTORY=/nonexistent")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return last, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(append(out, said.Bytes()...)))
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if json.Unmarshal(s.Bytes(), &last) != nil {
			last = truth.Line{}
		}
	}
	if last.Step == "" {
		err = fmt.Errorf("%s tells nothing of its work", strings.Join(command, " "))
	}
	return last, err
}

func shareCompute(ctx context.Context, m *machine) error {
	return m.shareOne(ctx, "sharing-compute", computing)
}

// shareMemory goes beyond the memory's limit: those copies are not measured, and
// said so.
func shareMemory(ctx context.Context, m *machine) error {
	return m.shareOne(ctx, "sharing-memory", m.streaming(), 16)
}

// knownPercent is the part of the multiprocessors that a job of known-load keeps busy.
const knownPercent = 50

// shareKnown measures one copy of a job whose load is known, beside which stands
// what the GPU's own counters tell (sm_activity in bench.json).
func shareKnown(ctx context.Context, m *machine) error {
	m.modes, m.copies = string(bench.Exclusive), "1"
	ms := m.seconds * 1000 / pieces
	command := strings.Fields(fmt.Sprintf("./gpujob info repeat %d load %d %d", pieces, knownPercent, int(ms)))
	return m.share(ctx, "known-load", command)
}

func (m *machine) shareOne(ctx context.Context, name string, w work, beyond ...int) error {
	n, err := m.amount(ctx, w, m.seconds*1000/pieces)
	if err != nil {
		return err
	}
	return m.share(ctx, name, []string{"./gpujob", "repeat", strconv.Itoa(pieces), w.word, strconv.Itoa(w.size), strconv.Itoa(n)}, beyond...)
}

// shareMix is a job that leaves most of the GPU idle: a quarter of its time each
// for a small kernel and for memory, half for its own CPU.
func shareMix(ctx context.Context, m *machine) error {
	ms := m.seconds * 1000 / pieces
	n, err := m.amount(ctx, kernel, ms/4)
	if err != nil {
		return err
	}
	b, err := m.amount(ctx, traffic, ms/4)
	if err != nil {
		return err
	}
	words := strings.Fields(fmt.Sprintf("%s %d %d %s %d %d sleep %d", kernel.word, kernel.size, n, traffic.word, traffic.size, b, int(ms/2)))
	command := []string{"./gpujob"}
	for range pieces {
		command = append(command, words...)
	}
	return m.share(ctx, "sharing-mix", command, 24)
}

// trainingTime is how many times as long as another job a training takes alone,
// and trainingSteps how many are tried to find out: it starts for longer.
const (
	trainingTime  = 2
	trainingSteps = 300
)

// shareTraining needs python3 with torch.
func shareTraining(ctx context.Context, m *machine) error {
	if _, err := m.alone(ctx, "python3", "./train.py", "--steps", "1"); err != nil {
		return fmt.Errorf("python3 with torch and CUDA is needed: %w", err)
	}
	tried, err := m.alone(ctx, "python3", "./train.py", "--steps", strconv.Itoa(trainingSteps))
	if err != nil {
		return err
	}
	steps := max(int(trainingSteps*trainingTime*m.seconds*1000/max(tried.MS, 1)), 1)
	return m.share(ctx, "sharing-training", []string{"python3", "./train.py", "--steps", strconv.Itoa(steps)})
}

// device is one that a program can use: in MIG mode none is the whole GPU.
func (m *machine) device() gpu.UUID {
	if m.gpu.MIGEnabled && len(m.gpu.MIGDevices) > 0 {
		return m.gpu.MIGDevices[0].UUID
	}
	return m.gpu.UUID
}

// place is where the result of a part belongs. In MIG mode it stands beside what
// was measured before, of the very same work.
func (m *machine) place(name string, command []string) (string, []string) {
	dir := filepath.Join(m.out, name+m.suffix)
	if !m.gpu.MIGEnabled {
		return dir, command
	}
	if before, err := bench.Read(dir); err == nil {
		command = before.Command
	}
	return dir + "-mig", command
}

// spare is how long the rest of a part takes after gpuslot bench's time.
const spare = 5 * time.Second

// numbers are those of copies: as asked for, or the paper's and some beyond.
func (m *machine) numbers(beyond []int) string {
	if m.copies != "" {
		return m.copies
	}
	text := "1,2,4,8,12"
	for _, n := range beyond {
		text += "," + strconv.Itoa(n)
	}
	return text
}

// share measures a command by gpuslot bench, as a site would.
func (m *machine) share(ctx context.Context, name string, command []string, beyond ...int) error {
	dir, command := m.place(name, command)
	label, numbers := strings.TrimPrefix(name+m.suffix, "sharing-"), m.numbers(beyond)
	if before, left := m.leftOut(); len(left) > 0 {
		label, command, numbers = before.Label, before.Command, left
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	args := []string{
		"bench", "--gpu", string(m.gpu.UUID), "--copies", numbers, "--repeats", strconv.Itoa(m.repeats),
		"--time-limit", max(time.Until(m.deadline)-spare, time.Second).Round(time.Second).String(),
		"--label", label, "--socket", "/nonexistent", "-o", dir,
	}
	if m.simulated {
		args = append(args, "--simulated")
	}
	if m.modes != "" {
		args = append(args, "--modes", m.modes)
	}
	cmd := exec.CommandContext(ctx, m.program("gpuslot"), append(append(args, "--"), command...)...)
	cmd.Dir = m.programs // so that the recorded command names no directory
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 25 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 { // measured, and no advice follows from it
		err = nil
	}
	r, unread := bench.Read(dir)
	if unread != nil {
		return errors.Join(err, unread) // all that copies said is kept: it tells why
	}
	if left := report.Left(r); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w before all was measured with these numbers of copies: %v", errTime, left))
	}
	return errors.Join(err, report.KeepWork(dir, r), keepFailures(dir, r))
}

// leftOut is the result before, and the numbers of copies that it had no time for;
// none where there is no such result.
func (m *machine) leftOut() (before bench.Result, copies string) {
	if m.after == "" {
		return before, ""
	}
	before, err := bench.Read(filepath.Join(m.out, m.after))
	if err != nil {
		return before, ""
	}
	return before, strings.Trim(strings.ReplaceAll(fmt.Sprint(report.Left(before)), " ", ","), "[]")
}

// keepFailures removes the output of copies that did well: all of it is too much.
func keepFailures(dir string, r bench.Result) error {
	for _, run := range r.Runs {
		if len(run.Failures()) > 0 {
			return nil
		}
	}
	return os.RemoveAll(filepath.Join(dir, "logs"))
}
