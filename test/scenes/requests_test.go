package scenes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/site"
)

// A node with two whole GPUs: jobs that need them get them, small jobs do not.
func TestWholeGPUs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 4, site.Options{Config: "[sharing]\nwhole = 2\n"})
	must(t, st.WaitAccept(ctx, 2))
	o, err := st.told(ctx, job{Seconds: 2, Lines: []string{"request_gpus = 2"}})
	must(t, err)
	ids := strings.Split(o.Env["CUDA_VISIBLE_DEVICES"], ",")
	st.Check(len(ids) == 2 && ids[0] != ids[1], "request_gpus = 2 got two different GPUs: %v", ids)
	st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "", "whole GPUs have no limit: %q", o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	o, err = st.told(ctx, job{Lines: []string{"request_gpus = 1"}})
	must(t, err)
	last := st.Inventory.GPUs[2:]
	got := o.Env["CUDA_VISIBLE_DEVICES"]
	st.Check(got == string(last[0].UUID) || got == string(last[1].UUID), "without request_vram a whole GPU: %s", got)
	small, err := st.complete(ctx, job{Lines: vram(2000), Queue: "queue 4"})
	must(t, err)
	for proc := range 4 {
		o, err := st.output(ctx, small, proc)
		must(t, err)
		st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2048M", "a small job is on a shared GPU: %s", o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	}
	must(t, st.closeWhole(ctx))
	done(t, st)
}

// closeWhole closes a whole GPU in use, then the other, and opens them.
func (st *Stage) closeWhole(ctx context.Context) (err error) {
	hold, release, err := st.hold(ctx, "whole")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	one := []string{"request_gpus = 1"}
	load, err := st.submit(ctx, job{Hold: hold, Lines: one})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, load, running); err != nil {
		return err
	}
	used, free := "", ""
	err = st.waitStatus(ctx, "the whole GPU's job", func(s api.Status) bool {
		used, free = "", ""
		for _, g := range s.GPUs[2:] {
			if len(g.Jobs) > 0 {
				used = g.UUID
			} else {
				free = g.UUID
			}
		}
		return used != "" && free != ""
	})
	if err != nil {
		return err
	}
	if _, err := st.Run(ctx, "gpuslot", "gpu", "close", used, "--reason", "riser"); err != nil {
		return err
	}
	o, err := st.told(ctx, job{Lines: one})
	if err != nil {
		return err
	}
	st.Check(o.Env["CUDA_VISIBLE_DEVICES"] == free, "a whole GPU that is closed while its job runs is in nobody's way: the next job has %s", o.Env["CUDA_VISIBLE_DEVICES"])
	if _, err := st.Run(ctx, "gpuslot", "gpu", "close", free, "--reason", "riser too"); err != nil {
		return err
	}
	err = st.Wait(ctx, "the slot of the whole GPUs to say that none is open", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint", `SlotID == 3 && SlotType == "Partitionable"`, "-af", "GPUAccept")
		return err == nil && strings.TrimSpace(out.Stdout) == "false"
	})
	if err != nil {
		return err
	}
	waiting, err := st.submit(ctx, job{Lines: one})
	if err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, waiting, 5*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "with the free one closed, job %d waits", waiting)
	out, _ := st.Run(ctx, "gpuslot", "gpu", "drain", used, "--reason", "riser", "--deadline", "1s")
	st.Check(out.Code == 5, "gpuslot gpu drain waits for the job of a whole GPU, exit code %d: %s", out.Code, oneLine(out.Stdout))
	if err := release(); err != nil {
		return err
	}
	out, err = st.Run(ctx, "gpuslot", "gpu", "drain", used, "--reason", "riser", "--deadline", "5m")
	st.Check(err == nil && strings.Contains(out.Stdout, "no job is left"), "it ends when the job has: %s", oneLine(out.Stdout))
	if _, err := st.Run(ctx, "gpuslot", "gpu", "open", "all"); err != nil {
		return err
	}
	err = st.waitJobs(ctx, waiting, completed)
	st.Check(err == nil, "opened, it runs")
	return err
}

// Jobs without request_vram from access points that write none into them get a share.
func TestShareWithoutRequest(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{NoAccessPoint: true, Config: "[request_vram]\nwithout_request = \"share\"\n"})
	must(t, st.WaitAccept(ctx, 1))
	s, err := st.Status(ctx)
	must(t, err)
	cluster, err := st.complete(ctx, job{Seconds: 8, Lines: []string{"request_gpus = 1"}, Queue: "queue 2"})
	must(t, err)
	for proc := range 2 {
		o, err := st.output(ctx, cluster, proc)
		must(t, err)
		st.Check(o.Env["GPUSLOT_VRAM_MIB"] != "" && o.Env["GPUSLOT_VRAM_MIB"] != "0", "job %d.%d has %s of %d MiB", cluster, proc, o.Env["GPUSLOT_VRAM_MIB"], s.GPUs[0].PoolMiB)
	}
	log, err := st.Journal(ctx, "gpuslotd.service")
	must(t, err)
	st.Check(!strings.Contains(log, "the startd's report differs"), "the startd's 0 MiB is no other word")
	done(t, st)
}

// Access points that cannot be changed: no transforms, odd requests.
func TestPlainAccessPoint(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{NoAccessPoint: true, Config: "[request_vram]\nwithout_request = \"hold\"\n"})
	must(t, st.WaitAccept(ctx, 2))
	o, err := st.told(ctx, job{Lines: vram(4001)})
	must(t, err)
	st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4001M", "the limit is what the slot has: %s", o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	must(t, holdsWithoutRequest(ctx, st))
	must(t, st.refusedByHook(ctx, "4", "request_vram is in MiB; did you mean 4096?"))
	_, err = st.submit(ctx, job{Lines: []string{"request_gpus = 1", "request_vram = 4GB"}})
	st.Check(err != nil, "condor_submit itself refuses request_vram = 4GB")
	st.Contains(oneLine(fmt.Sprint(err)), "ERROR: Parse error in expression: Requestvram = 4GB", "with the words")
	must(t, st.staysAway(ctx))
	done(t, st)
}

// staysAway: a slot made for less than nothing would leave its GPU with more VRAM to give
// than it has, and one made for a fraction would not fit the job.
func (st *Stage) staysAway(ctx context.Context) error {
	for _, lines := range [][]string{
		{"request_gpus = 1", "request_vram = -100000"}, {"request_gpus = 0", "request_vram = -100000"},
		{"request_gpus = 1", "request_vram = 4000.5"},
	} {
		cluster, err := st.submit(ctx, job{Lines: lines})
		if err != nil {
			return err
		}
		idle, err := st.staysIdle(ctx, cluster, 5*time.Second)
		if err != nil {
			return err
		}
		st.Check(idle, "a job with %s stays idle", strings.Join(lines, ", "))
		if err := st.remove(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// refusedByHook: the job comes to the slot, and is held there.
func (st *Stage) refusedByHook(ctx context.Context, request, reason string) error {
	cluster, err := st.submit(ctx, job{Lines: []string{"request_gpus = 1", "request_vram = " + request}})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, held); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "HoldReasonCode", "HoldReasonSubCode", "HoldReason")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == "19" && rows[0][1] == "81", "request_vram = %s: held, %s/%s", request, rows[0][0], rows[0][1])
	st.Contains(rows[0][2], reason, "HoldReason")
	return st.remove(ctx, cluster)
}

// Claims are reused on many sites: the next job must not inherit the slot.
func TestClaimReuse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{Condor: "CLAIM_WORKLIFE = 1200\n", Config: "[cpu_only]\ncpus = 0\n"})
	must(t, st.WaitAccept(ctx, 1))
	cluster, err := st.submit(ctx, job{
		// Any two of them are more than the pool: they run one after the other.
		Lines: []string{"request_gpus = 1", "request_vram = $(size)"},
		Queue: "queue size in (20000, 17000, 20000)",
	})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, completed))
	for proc, want := range []string{"0=20480M", "0=17408M", "0=20480M"} {
		o, err := st.output(ctx, cluster, proc)
		must(t, err)
		st.Check(o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == want, "job %d has its own limit: %s", proc, o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	}
	// Nor must a job without GPUs: here no other slot would take it.
	gpuJob, err := st.submit(ctx, job{Seconds: 2, Lines: vram(4000)})
	must(t, err)
	cpu, err := st.submit(ctx, job{})
	must(t, err)
	must(t, st.waitJobs(ctx, gpuJob, completed))
	stays, err := st.staysIdle(ctx, cpu, 4*time.Second)
	must(t, err)
	st.Check(stays, "a job without GPUs does not run in the slot that its owner's GPU job had")
	must(t, st.remove(ctx, cpu))
	// A closed GPU takes no job through a claim that was made before.
	u := st.Inventory.GPUs[0].UUID
	queue, err := st.submit(ctx, job{Seconds: 3, Lines: vram(16000), Queue: "queue 3"})
	must(t, err)
	_, err = st.waitLog(ctx, queue, executing)
	must(t, err)
	pid, err := st.mainPID(ctx, unit(u))
	must(t, err)
	_, err = st.Run(ctx, "kill", "-STOP", pid)
	must(t, err)
	must(t, st.waitSlot(ctx, u, false))
	time.Sleep(6 * time.Second)
	log, err := st.JobLog(ctx, queue)
	must(t, err)
	st.Check(strings.Count(log, executing) == 1, "of cluster %d only the job that ran before the GPU closed was executed", queue)
	_, err = st.Run(ctx, "kill", "-CONT", pid)
	must(t, err)
	must(t, st.waitJobs(ctx, queue, completed))
	done(t, st)
}
