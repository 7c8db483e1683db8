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

	"github.com/gpuslot/gpuslot/agent/bench"
	"github.com/gpuslot/gpuslot/gpu"
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

var (
	computing = work{"compute", 60, 200}
	streaming = work{"stream", 1024, 4}
	kernel    = work{"compute", 15, 200}
	traffic   = work{"stream", 64, 4}
)

// amount finds how often a work has to be done to take so many milliseconds.
func (m *machine) amount(ctx context.Context, w work, ms float64) (int, error) {
	n := w.first
	for {
		took, err := m.took(ctx, w, n)
		if err != nil {
			return 0, err
		}
		if took >= ms/4 || n >= 1<<28 {
			return max(int(float64(n)*ms/max(took, 0.001)), 1), nil
		}
		n *= 4
	}
}

// took is how many milliseconds it takes, warm.
func (m *machine) took(ctx context.Context, w work, n int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	words := []string{w.word, strconv.Itoa(w.size), strconv.Itoa(n)}
	cmd := exec.CommandContext(ctx, m.program("gpujob"), append(append([]string{"context"}, words...), words...)...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+string(m.device()), "CUDA_MPS_PIPE_DIRECTORY=/nonexistent")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("gpujob %v: %w: %s", words, err, out)
	}
	var last truth.Line
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if err := json.Unmarshal(s.Bytes(), &last); err != nil {
			return 0, err
		}
	}
	return last.MS, nil
}

func shareCompute(ctx context.Context, m *machine) error {
	return m.shareOne(ctx, "sharing-compute", computing)
}

func shareMemory(ctx context.Context, m *machine) error {
	return m.shareOne(ctx, "sharing-memory", streaming)
}

func (m *machine) shareOne(ctx context.Context, name string, w work) error {
	n, err := m.amount(ctx, w, m.seconds*1000/pieces)
	if err != nil {
		return err
	}
	return m.share(ctx, name, "./gpujob", "repeat", strconv.Itoa(pieces), w.word, strconv.Itoa(w.size), strconv.Itoa(n))
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
	m.copies += ",24" // small jobs: more of them than the paper's twelve
	return m.share(ctx, "sharing-mix", command...)
}

// shareTraining needs python3 with torch.
func shareTraining(ctx context.Context, m *machine) error {
	script := m.program("train.py")
	check, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(check, "python3", script, "--check").CombinedOutput(); err != nil {
		return fmt.Errorf("python3 with torch and CUDA is needed: %w: %s", err, bytes.TrimSpace(out))
	}
	return m.share(ctx, "sharing-training", "python3", "./train.py")
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
	dir := filepath.Join(m.out, name)
	if !m.gpu.MIGEnabled {
		return dir, command
	}
	if before, err := bench.Read(dir); err == nil {
		command = before.Command
	}
	return dir + "-mig", command
}

// share measures a command by gpuslot bench, as a site would.
func (m *machine) share(ctx context.Context, name string, command ...string) error {
	dir, command := m.place(name, command)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	args := []string{
		"bench", "--gpu", string(m.gpu.UUID), "--copies", m.copies, "--repeats", strconv.Itoa(m.repeats),
		"--time-limit", m.limit.String(), "--label", strings.TrimPrefix(name, "sharing-"), "--socket", "/nonexistent", "-o", dir,
	}
	if m.simulated {
		args = append(args, "--simulated")
	}
	cmd := exec.CommandContext(ctx, m.program("gpuslot"), append(append(args, "--"), command...)...)
	cmd.Dir = m.programs // so that the recorded command names no directory
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // measured, and no advice follows from it
		err = nil
	}
	if err == nil {
		_, err = bench.Read(dir)
	}
	// What copies said is kept where it tells of a failure; all of it is too much.
	return errors.Join(err, keepFailures(dir))
}

// keepFailures removes the output of copies that did well. Of a part without a
// result all of it tells something.
func keepFailures(dir string) error {
	r, err := bench.Read(dir)
	failed := err != nil
	for _, run := range r.Runs {
		failed = failed || len(run.Failures()) > 0
	}
	if failed {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, "logs"))
}
