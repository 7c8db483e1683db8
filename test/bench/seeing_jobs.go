package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// endJobs ends all jobs of a node.
func (w *watched) endJobs() error {
	if w.startd == nil {
		return nil
	}
	return w.startd.End()
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
	if w.startd, err = startd.NewMany(b.path("condor_starter"), "-f"); err != nil {
		return err
	}
	pids, errs := make([][]int, w.slots), make([]error, w.slots)
	var wg sync.WaitGroup
	room := make(chan struct{}, starting)
	for i := range w.slots {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			pids[i], errs[i] = b.stay(w, i, uuids[i%len(uuids)])
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, job := range pids {
		for _, pid := range job {
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
func (b *bench) stay(w *watched, i int, u gpu.UUID) (pids []int, err error) {
	o := order.Order{Rounds: 1, Programs: []order.Program{b.prepareFor(w.socket, i, u)}}
	for range w.processes {
		o.Job = append(o.Job, []string{"sleep", "infinity"})
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	// On a busy machine a GPU may be closed for a moment: HTCondor tries again, too.
	var out []byte
	for range 10 {
		if out, err = w.startd.Start(text, "-f", "-local-name", "slot_type_101", "-a", fmt.Sprintf("slot1_%d", i+1), "bench"); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		return nil, err
	}
	var report order.Report
	err = json.Unmarshal(out, &report)
	return report.PIDs, err
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
