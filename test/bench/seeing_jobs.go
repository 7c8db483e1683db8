package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/bench/order"
	"github.com/gpuslot/gpuslot/test/startd"
)

// run runs a program of the simulator on a state.
func (n simNode) run(ctx context.Context, state, program string, args ...string) error {
	c := exec.CommandContext(ctx, filepath.Join(n.bin, program), args...)
	c.Env = append(os.Environ(), n.env(state)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", program, args, err, out)
	}
	return nil
}

// stayingJob is a starter whose job stays until its input is closed.
type stayingJob struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	pids  []int
}

func (w *watched) endJobs() error {
	var errs []error
	for _, j := range w.jobs {
		errs = append(errs, j.input.Close())
	}
	for _, j := range w.jobs {
		errs = append(errs, j.cmd.Wait())
	}
	return errors.Join(errs...)
}

// starting is how many jobs start at once.
const starting = 8

// fill admits the jobs of a node and puts their processes on its GPUs.
func (b *bench) fill(ctx context.Context, n simNode, w *watched) error {
	if w.slots == 0 {
		return nil
	}
	progress("seeing: %d jobs for %q", w.slots, w.what)
	uuids, err := uuidsOf(ctx, n, w.state)
	if err != nil {
		return err
	}
	jobs, errs := make([]*stayingJob, w.slots), make([]error, w.slots)
	var wg sync.WaitGroup
	room := make(chan struct{}, starting)
	for i := range w.slots {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			jobs[i], errs[i] = b.stay(w, i, uuids[i%len(uuids)])
		})
	}
	wg.Wait()
	for _, j := range jobs {
		if j != nil {
			w.jobs = append(w.jobs, j)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, j := range jobs {
		for _, pid := range j.pids {
			// A per cent each: 48 of them fit a GPU.
			if err := n.run(ctx, w.state, "simgpu", "process", "client", strconv.Itoa(pid), strconv.Itoa(i%len(uuids)), "512", "1"); err != nil {
				return err
			}
		}
	}
	return nil
}

// uuidsOf are the GPUs of a state, in NVML's order.
func uuidsOf(ctx context.Context, n simNode, state string) (out []gpu.UUID, err error) {
	c := exec.CommandContext(ctx, n.smi, "--query-gpu=uuid", "--format=csv,noheader")
	c.Env = append(os.Environ(), n.env(state)...)
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w: %s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		u, err := gpu.ParseUUID(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// stay admits one job as HTCondor does and leaves its processes running.
func (b *bench) stay(w *watched, i int, u gpu.UUID) (*stayingJob, error) {
	hook := b.prepareFor(w.socket, i, u)
	o := order.Order{Rounds: 1, Programs: []order.Program{hook}}
	for range w.processes {
		o.Job = append(o.Job, []string{"sleep", "infinity"})
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	// Not killed with the context: it ends its processes when its input ends.
	c, err := startd.Starter(context.Background(), b.path("condor_starter"), "-f", "-local-name", "slot_type_101", "-a", fmt.Sprintf("slot1_%d", i+1), "bench")
	if err != nil {
		return nil, err
	}
	c.Env = append(os.Environ(), "GOGC=10", "GOMAXPROCS=1") // hundreds of them
	var stderr bytes.Buffer
	c.Stderr = &stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	j := &stayingJob{cmd: c, input: in}
	_, err = in.Write(text)
	var report order.Report
	if err = errors.Join(err, json.NewDecoder(out).Decode(&report)); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", err, errors.Join(in.Close(), c.Wait()), stderr.String())
	}
	j.pids = report.PIDs
	return j, nil
}

// smiExporter looks as exporters do that run nvidia-smi for each scrape: GPUs,
// then processes. It maps no process to a slot, and says nothing of their work.
type smiExporter struct {
	node        simNode
	state, path string
	took        []time.Duration
	used        time.Duration
	rss         int64 // bytes
}

var smiQueries = []string{
	"--query-gpu=uuid,index,name,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,utilization.memory,power.draw,power.limit," +
		"temperature.gpu,clocks.sm,clocks.mem,clocks_throttle_reasons.active,ecc.errors.corrected.aggregate.total,ecc.errors.uncorrected.aggregate.total,compute_mode,mig.mode.current",
	"--query-compute-apps=gpu_uuid,pid,used_memory",
}

func (s *smiExporter) scrape(ctx context.Context) error {
	begin := time.Now()
	for _, query := range smiQueries {
		c := exec.CommandContext(ctx, s.path, query, "--format=csv,noheader,nounits")
		c.Env = append(os.Environ(), s.node.env(s.state)...)
		out, err := c.Output()
		if err != nil {
			return fmt.Errorf("nvidia-smi %s: %w: %s", query, err, out)
		}
		s.used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
			s.rss = max(s.rss, u.Maxrss<<10)
		}
	}
	s.took = append(s.took, time.Since(begin))
	return nil
}

// cpu is that of one look.
func (s *smiExporter) cpu() time.Duration { return s.used / time.Duration(len(s.took)) }
