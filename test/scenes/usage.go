package scenes

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// used is one of several jobs in a row.
type used struct {
	alloc gpu.MiB
	// words of simjob after the allocation; GPUSeconds is what they come to.
	words      string
	gpuSeconds float64
}

// ownUsage: HTCondor's numbers of a slot's jobs are each job's own. The GPU
// tells its activity, and the jobs have it alone, so their bounds meet.
func ownUsage(ctx context.Context, st *Stage) error {
	g := st.Inventory.GPUs[len(st.Inventory.GPUs)-1]
	slot := ""
	for i, u := range []used{
		{alloc: 800, words: "load 50 12s until eof", gpuSeconds: 6},
		{alloc: 300, words: "until eof"},
		{alloc: 600, words: "load 25 8s until eof", gpuSeconds: 2},
	} {
		host, err := st.runUsed(ctx, g, i, u)
		if err != nil {
			return err
		}
		if slot == "" {
			slot = host
		}
		st.Check(host == slot, "job %d of 3 had the slot %s", i+1, host)
	}
	return nil
}

// checkKept checks the agent's own record of a job, and its timeline after the
// job is gone and the agent has started again.
func (st *Stage) checkKept(ctx context.Context, cluster int, mib int64) error {
	job := fmt.Sprintf("%d.0", cluster)
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var record string
	err := st.Wait(ctx, "the record of job "+job, func() bool {
		out, err := st.Run(ctx, "gpuslot", "usage", "--since", "1h", "--by", "job")
		record = lineWith(out.Stdout, job+" ")
		return err == nil && strings.HasPrefix(record, job+" ")
	})
	if err != nil {
		return err
	}
	fields := strings.Fields(record)
	st.Check(fields[len(fields)-1] == strconv.FormatInt(mib, 10), "gpuslot usage: %s", oneLine(record))
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	why, err := st.Run(ctx, "gpuslot", "why", job)
	if err != nil {
		return err
	}
	for _, want := range []string{"admitted", "end "} {
		st.Contains(why.Stdout, want, "gpuslot why "+job+", after a restart of the agent")
	}
	return st.WaitAccept(ctx, len(st.Inventory.GPUs))
}

// runUsed runs one job until HTCondor knows all of it, and checks what is left
// of it in log and history.
func (st *Stage) runUsed(ctx context.Context, g gpu.GPU, i int, u used) (host string, err error) {
	hold, release, err := st.hold(ctx, fmt.Sprintf("used-%d", i))
	if err != nil {
		return "", err
	}
	defer func() { _ = release() }()
	cluster, err := st.submit(ctx, client(g.UUID, hold, fmt.Sprintf("alloc %d %s", u.alloc, u.words)))
	if err != nil {
		return "", err
	}
	n, err := st.waitClients(ctx, g.Index, 1, u.alloc)
	if err != nil {
		return "", err
	}
	truth := int64(n.on(g.Index, kindClient)[0].Memory)
	if err := st.waitUsed(ctx, truth, u.gpuSeconds); err != nil {
		return "", err
	}
	if err := st.publicStatus(ctx, cluster); err != nil {
		return "", err
	}
	if err := release(); err != nil {
		return "", err
	}
	if err := st.checkEnd(ctx, user, cluster, "0", "until eof: ok", "a job"); err != nil {
		return "", err
	}
	host, err = st.checkUsed(ctx, cluster, truth, u.gpuSeconds)
	if err != nil {
		return "", err
	}
	return host, st.checkKept(ctx, cluster, truth)
}

// publicStatus: a user sees the own job in gpuslot status and top, and others see that
// there is one.
func (st *Stage) publicStatus(ctx context.Context, cluster int) error {
	job := fmt.Sprintf(" %d.0 ", cluster)
	for _, verb := range [][]string{{"gpuslot", "status"}, {"gpuslot", "top", "--once"}} {
		own, err := st.RunAs(ctx, user, verb...)
		if err != nil {
			return err
		}
		others, err := st.RunAs(ctx, "bob", verb...)
		if err != nil {
			return err
		}
		st.Check(strings.Contains(own.Stdout, job) && strings.Contains(own.Stdout, user), "%s shows %s her job%s", verb[1], user, job)
		st.Check(!strings.Contains(others.Stdout, job) && !strings.Contains(others.Stdout, user) && strings.Contains(others.Stdout, "slot"),
			"%s shows bob a slot without a name: %s", verb[1], oneLine(others.Stdout))
	}
	return nil
}

// waitUsed waits until the startd tells the running job all that it used: a
// job's last seconds are in its ad only if an update came after them.
func (st *Stage) waitUsed(ctx context.Context, mib int64, seconds float64) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	said := ""
	err := st.Wait(ctx, "the slot to tell what its job used", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint", `SlotType == "Dynamic"`, "-af", "VRAMUsage", "GPUTimeUsage")
		if err == nil {
			said = oneLine(out.Stdout)
		}
		fields := strings.Fields(out.Stdout)
		if err != nil || len(fields) != 2 {
			return false
		}
		vram, errVRAM := strconv.ParseFloat(fields[0], 64)
		gpus, errGPUs := strconv.ParseFloat(fields[1], 64)
		return errVRAM == nil && errGPUs == nil && int64(vram) == mib && math.Abs(gpus-seconds) <= timeError(seconds)
	})
	if err != nil {
		return fmt.Errorf("%w; the truth is %d MiB and %.1f s, the slot says %q", err, mib, seconds, said)
	}
	return nil
}

// timeError is the sampling's, and that of the load's own clock, which is late on
// a machine with other work.
func timeError(seconds float64) float64 { return 0.1*seconds + 0.5 }

func (st *Stage) checkUsed(ctx context.Context, cluster int, mib int64, seconds float64) (host string, err error) {
	log, err := st.JobLog(ctx, cluster)
	if err != nil {
		return "", err
	}
	want := fmt.Sprintf("VRAM : %d 4096 4096", mib)
	st.Contains(strings.Join(strings.Fields(lineWith(log, "VRAM  ")), " "), want, "its event log (usage, request, allocated; simgpu's truth)")
	rows, err := st.JobAttrs(ctx, cluster, "VRAMUsage", "GPUTimeUsage", "GPUTimeMinUsage", "GPUTimeMaxUsage", "GPUEnergyUsage", "LastRemoteHost")
	if err != nil {
		return "", err
	}
	row := rows[0]
	st.Check(row[0] == fmt.Sprintf("%d.0", mib), "condor_history says VRAMUsage = %s, the truth is %d MiB", row[0], mib)
	var v [4]float64
	for i := range v {
		if v[i], err = strconv.ParseFloat(row[i+1], 64); err != nil {
			return "", fmt.Errorf("condor_history has no numbers for GPU time and energy: %v: %w", row, err)
		}
	}
	st.Check(math.Abs(v[0]-seconds) <= timeError(seconds), "GPUTimeUsage = %.3f, the truth is %.1f", v[0], seconds)
	st.Check(v[1] <= v[0] && v[0] <= v[2], "its bounds are %.3f and %.3f", v[1], v[2])
	st.Check(v[3] > 0 || seconds == 0 && v[3] == 0, "GPUEnergyUsage = %.0f", v[3])
	job := fmt.Sprintf("%d.0", cluster)
	shown, err := st.RunAs(ctx, user, "gpuslot", "usage", job)
	if err != nil {
		return "", err
	}
	said := strings.Join(strings.Fields(shown.Stdout), " ")
	for _, want := range []string{"job " + job + " of " + user + ", completed", fmt.Sprintf("VRAM peak %d MiB", mib),
		"asked for 4096 MiB", fmt.Sprintf("GPU time %.1f s", v[0]), "next time ask for request_vram = "} {
		if !strings.Contains(said, want) {
			return "", fmt.Errorf("gpuslot usage %s does not say %q: %s", job, want, said)
		}
	}
	st.Check(true, "gpuslot usage %s, as its user: %s", job, said)
	return row[5], nil
}
