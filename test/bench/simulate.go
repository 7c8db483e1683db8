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

	"github.com/gpuslot/gpuslot/agent/simulate"
)

// The aims of one policy on two cores.
const (
	scaleTime = 10 * time.Minute
	scaleRSS  = 4 << 10 // MiB
	scaleJobs = 10_000_000
)

// simulated replays ten million jobs on eighty thousand GPUs, on two cores: each
// policy by itself, in a process of its own.
func simulated(ctx context.Context) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "gb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "gpuslot")
	if err := build1(ctx, program, "./cmd/gpuslot"); err != nil {
		return nil, err
	}
	for _, policy := range []string{"exclusive", "time-slicing", "mps", "static-mig"} {
		r, err := scaled(ctx, program, policy)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

func scaled(ctx context.Context, program, policy string) ([]row, error) {
	progress("simulate %s: %d jobs on 10000 nodes of 8 GPUs", policy, scaleJobs)
	cmd := exec.CommandContext(ctx, program, "simulate", "test/bench/testdata/scale-pool.toml", "--jobs", "test/bench/testdata/scale-jobs.toml", "--policy", policy, "--json")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gpuslot simulate --policy %s: %w", policy, err)
	}
	took := time.Since(begin)
	var said struct {
		Policies []simulate.Result `json:"policies"`
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		return nil, err
	}
	if r := said.Policies[0]; r.Jobs != scaleJobs || r.Ended+r.Refused != scaleJobs || r.Refused > 0 {
		return nil, fmt.Errorf("%s: %d of %d jobs ended, %d were refused", policy, r.Ended, r.Jobs, r.Refused)
	}
	mib := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024 // Linux: KiB
	return []row{
		{fmt.Sprintf("simulate, 80,000 GPUs, 10 million jobs, %s", policy), took.Round(time.Second).String(), "<= 10m", took <= scaleTime},
		{"", fmt.Sprintf("%d MiB", mib), "<= 4096 MiB", mib <= scaleRSS},
	}, nil
}
