package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
)

// The aims of one policy on two cores.
const (
	scaleTime = 10 * time.Minute
	scaleRSS  = 4 << 10    // MiB
	scaleJobs = 10_000_000 // but of dynamic-mig
)

// replay is one policy on one pool of test/bench/testdata, of jobs at least.
type replay struct {
	files, size, policy string
	jobs                int
}

// replays are ten million jobs on eighty thousand GPUs, and a day of eight thousand whose
// MIG layouts follow, on two cores: each policy by itself, in a process of its own.
func replays() (all []replay) {
	for _, policy := range []string{"exclusive", "time-slicing", "mps", "static-mig"} {
		all = append(all, replay{"scale", "80,000 GPUs, 10 million jobs", policy, scaleJobs})
	}
	return append(all, replay{"follow", "8,192 GPUs, a day", "dynamic-mig", 600_000})
}

func (r replay) run(ctx context.Context) (rows []row, err error) {
	progress("simulate %s: %s", r.policy, r.size)
	dir, err := os.MkdirTemp("", "gb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "gpuslot")
	if err := build1(ctx, program, "./cmd/gpuslot"); err != nil {
		return nil, err
	}
	files := "test/bench/testdata/" + r.files
	cmd := exec.CommandContext(ctx, program, "simulate", files+"-pool.toml", "--jobs", files+"-jobs.toml", "--policy", r.policy, "--json")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gpuslot simulate --policy %s: %w", r.policy, err)
	}
	took := time.Since(begin)
	var said struct {
		Policies []simulate.Result `json:"policies"`
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		return nil, err
	}
	if got := said.Policies[0]; got.Jobs < r.jobs || got.Ended != got.Jobs {
		return nil, fmt.Errorf("%s: %d of %d jobs ended, %d were refused", r.policy, got.Ended, got.Jobs, got.Refused)
	}
	mib := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024 // Linux: KiB
	return []row{
		{fmt.Sprintf("simulate, %s, %s", r.size, r.policy), took.Round(time.Second).String(), "<= 10m", took <= scaleTime},
		{"", fmt.Sprintf("%d MiB", mib), "<= 4096 MiB", mib <= scaleRSS},
	}, nil
}
