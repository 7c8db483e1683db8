package scenes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

func ownVariables(ctx context.Context, st *Stage) error {
	cluster, err := st.submit(ctx, job{Lines: []string{
		"request_gpus = 1", "request_vram = 4000",
		`environment = "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G,1=1G CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 ` +
			`CUDA_MPS_CLIENT_PRIORITY=1 CUDA_VISIBLE_DEVICES=0,1,2 TF_FORCE_GPU_ALLOW_GROWTH=false GPUSLOT_MINE='two words'"`,
	}})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	o, err := st.output(ctx, cluster, 0)
	if err != nil {
		return err
	}
	uuid := o.Env["CUDA_VISIBLE_DEVICES"]
	_, parse := gpu.ParseUUID(uuid)
	st.Check(parse == nil, "CUDA_VISIBLE_DEVICES=%s", uuid)
	st.Check(o.Env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/gpuslot/mps/"+uuid, "CUDA_MPS_PIPE_DIRECTORY=%s", o.Env["CUDA_MPS_PIPE_DIRECTORY"])
	st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s", o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	for _, gone := range []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY"} {
		_, there := o.Env[gone]
		st.Check(!there, "%s is gone", gone)
	}
	st.Check(o.Env["TF_FORCE_GPU_ALLOW_GROWTH"] == "false", "what the job may choose stays: TF_FORCE_GPU_ALLOW_GROWTH=%s", o.Env["TF_FORCE_GPU_ALLOW_GROWTH"])
	st.Check(o.Env["GPUSLOT_MINE"] == "two words", "its other variables arrive intact: GPUSLOT_MINE=%q", o.Env["GPUSLOT_MINE"])
	return nil
}

// noRequest: a job that may be for other nodes of the pool is not held here.
func noRequest(ctx context.Context, st *Stage) error {
	return st.waitsFor(ctx, "(TARGET.RequestVRAM ?: 0) > 0", "request_gpus = 1")
}

func twoGPUs(ctx context.Context, st *Stage) error {
	return st.waitsFor(ctx, "TARGET.RequestGPUs is 1", "request_gpus = 2", "request_vram = 4000")
}

// waitsFor checks that a job stays idle, and that HTCondor's own analysis shows the
// slots' condition that it does not meet.
func (st *Stage) waitsFor(ctx context.Context, condition string, lines ...string) error {
	cluster, err := st.submit(ctx, job{Lines: lines})
	if err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, cluster, 6*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "job %d with %s stays idle: this node has shared GPUs only", cluster, strings.Join(lines, ", "))
	out, err := st.Run(ctx, "condor_q", "-better-analyze:reverse", "-machine", "slot1@wn1.test", strconv.Itoa(cluster))
	if err != nil {
		return err
	}
	// [0]           0  TARGET.RequestGPUs is 1: the condition that no job meets.
	row := regexp.MustCompile(`(?m)^\[\d+\] +0 +` + regexp.QuoteMeta(condition) + `$`)
	st.Check(row.MatchString(out.Stdout), "condor_q -better-analyze:reverse shows that the slot's %s is not met", condition)
	return st.remove(ctx, cluster)
}

// holdsWithoutRequest: by the site's choice the job is held with the line to add.
func holdsWithoutRequest(ctx context.Context, st *Stage) error {
	cluster, err := st.submit(ctx, job{Lines: []string{"request_gpus = 1"}})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, held); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "HoldReason")
	if err != nil {
		return err
	}
	st.Contains(rows[0][0], "request_vram = ", "HoldReason")
	return st.remove(ctx, cluster)
}

func cpuOnly(ctx context.Context, st *Stage) (err error) {
	hold, release, err := st.hold(ctx, "beside")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	beside, err := st.submit(ctx, job{Hold: hold, Lines: vram(4000)})
	if err == nil {
		err = st.waitJobs(ctx, beside, running)
	}
	if err != nil {
		return err
	}
	cluster, err := st.complete(ctx, job{Seconds: 1})
	if err != nil {
		return err
	}
	o, err := st.output(ctx, cluster, 0)
	if err != nil {
		return err
	}
	visible := o.Env["CUDA_VISIBLE_DEVICES"]
	st.Check(!strings.Contains(visible, "GPU-") && o.Env["NVIDIA_VISIBLE_DEVICES"] == "none",
		"CPU-only job %d: NVIDIA_VISIBLE_DEVICES=%s, CUDA_VISIBLE_DEVICES=%s names no GPU", cluster, o.Env["NVIDIA_VISIBLE_DEVICES"], visible)
	for name := range o.Env {
		if strings.HasPrefix(name, "CUDA_MPS_") || strings.HasPrefix(name, "GPUSLOT_") {
			st.Check(false, "CPU-only job has %s=%s", name, o.Env[name])
		}
	}
	return errors.Join(release(), st.waitJobs(ctx, beside, completed))
}

func tooLarge(ctx context.Context, st *Stage) error {
	_, err := st.submit(ctx, job{Lines: vram(40000)})
	var exit *node.ExitError
	if !errors.As(err, &exit) {
		st.Check(false, "condor_submit of request_vram = 40000 should fail, got: %v", err)
		return nil
	}
	largest := gpu.MiB(0)
	s, err := st.Status(ctx)
	if err != nil {
		return err
	}
	for _, g := range s.GPUs {
		largest = max(largest, gpu.MiB(g.PoolMiB))
	}
	st.Contains(exit.Result.Stderr, fmt.Sprintf("%d MiB", largest), "condor_submit")
	return nil
}
