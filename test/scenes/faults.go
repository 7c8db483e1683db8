package scenes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

func unit(u gpu.UUID) string { return "gpuslot-mps@" + string(u) + ".service" }

// mainPID is the process of a unit, as seen inside.
func (st *Stage) mainPID(ctx context.Context, unit string) (string, error) {
	out, err := st.Run(ctx, "systemctl", "show", "-P", "MainPID", unit)
	return strings.TrimSpace(out.Stdout), err
}

// statusOf is one GPU's part of gpuslot status.
func (st *Stage) statusOf(ctx context.Context, u gpu.UUID) (api.StatusGPU, error) {
	s, err := st.Status(ctx)
	if err != nil {
		return api.StatusGPU{}, err
	}
	for _, g := range s.GPUs {
		if g.UUID == string(u) {
			return g, nil
		}
	}
	return api.StatusGPU{}, fmt.Errorf("gpuslot status does not show %s", u)
}

func pinned(u gpu.UUID, seconds int) job {
	return job{Seconds: seconds, Lines: vram(4000, on(u))}
}

// deafen stops what tells START of the GPUs, until hears is called.
func (st *Stage) deafen(ctx context.Context) (hears func() error, err error) {
	signal := func(name string) error {
		_, err := st.Run(context.WithoutCancel(ctx), "pkill", name, "-f", "[m]onitor -follow")
		return err
	}
	return func() error { return signal("-CONT") }, signal("-STOP")
}

func wedged(ctx context.Context, st *Stage) error {
	u := st.Inventory.GPUs[0].UUID
	pid, err := st.mainPID(ctx, unit(u))
	if err != nil {
		return err
	}
	if err := st.freshStamp(ctx, u); err != nil {
		return err
	}
	// START hears of it only when a job has been matched.
	hears, err := st.deafen(ctx)
	if err != nil {
		return err
	}
	defer hears() //nolint:errcheck // also done below, where it counts
	if _, err := st.Run(ctx, "kill", "-STOP", pid); err != nil {
		return err
	}
	defer st.Run(context.WithoutCancel(ctx), "kill", "-CONT", pid) //nolint:errcheck // also done below, where it counts
	early, err := st.submit(ctx, pinned(u, 1))
	if err != nil {
		return err
	}
	log, err := st.waitLog(ctx, early, "(reported status 3")
	if err != nil {
		return err
	}
	if err := hears(); err != nil {
		return err
	}
	st.Contains(log, "(reported status 3", fmt.Sprintf("job %d, matched before START knew, was requeued; its event log", early))
	if err := st.waitSlot(ctx, u, false); err != nil {
		return err
	}
	_, reason := st.slotAccepts(ctx, u)
	st.Check(reason != "" && reason != "undefined", "the slot says why it is closed: %s", reason)
	g, err := st.statusOf(ctx, u)
	if err != nil {
		return err
	}
	st.Check(!g.Accept && g.Reason != "", "gpuslot status: GPU %d closed: %s", g.Index, g.Reason)
	late, err := st.submit(ctx, pinned(u, 1))
	if err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, late, 6*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "job %d, submitted later, is not matched there", late)
	if _, err := st.Run(ctx, "kill", "-CONT", pid); err != nil {
		return err
	}
	if err := st.waitJobs(ctx, early, completed); err != nil {
		return err
	}
	err = st.waitJobs(ctx, late, completed)
	st.Check(err == nil, "the daemon answers again: the GPU accepts, both jobs ran")
	return err
}

func stopped(ctx context.Context, st *Stage) error {
	u := st.Inventory.GPUs[1].UUID
	before, err := st.mainPID(ctx, unit(u))
	if err != nil {
		return err
	}
	if err := st.freshStamp(ctx, u); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "stop", unit(u)); err != nil {
		return err
	}
	cluster, err := st.complete(ctx, pinned(u, 1))
	if err != nil {
		return err
	}
	after, err := st.mainPID(ctx, unit(u))
	if err != nil {
		return err
	}
	st.Check(after != before && after != "0", "the agent started the control daemon of %s again (pid %s, was %s)", u, after, before)
	o, err := st.output(ctx, cluster, 0)
	if err != nil {
		return err
	}
	why := wrongEnvironment(o, string(u), 4096)
	st.Check(why == "", "job %d ran with its limits %s", cluster, why)
	if err := st.waitSlot(ctx, u, true); err != nil {
		return err
	}
	return st.checkUnprovable(ctx, u)
}

// checkUnprovable: a control daemon is asked for a server when no client uses it,
// and NVIDIA's finds no GPU here.
func (st *Stage) checkUnprovable(ctx context.Context, u gpu.UUID) error {
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	server := ""
	err := st.Wait(wait, "the trial of a server", func() bool {
		g, err := st.statusOf(wait, u)
		server = g.Server
		return err == nil && strings.Contains(server, "not provable without a GPU")
	})
	st.Check(err == nil, "server: %s", server)
	log, err := st.Run(ctx, "journalctl", "--namespace=gpuslot", "-q", "-o", "cat", "-u", unit(u))
	st.Check(strings.Contains(log.Stdout, "no CUDA-capable device is detected"), "the journal of the control daemons says why")
	return err
}

func agentKilled(ctx context.Context, st *Stage) (err error) {
	hold, release, err := st.hold(ctx, "killed")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	cluster, err := st.submit(ctx, job{Hold: hold, Lines: vram(6000), Queue: "queue 4"})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, running); err != nil {
		return err
	}
	u := st.Inventory.GPUs[0].UUID
	daemon, err := st.mainPID(ctx, unit(u))
	if err != nil {
		return err
	}
	agent, err := st.mainPID(ctx, "gpuslotd.service")
	if err != nil {
		return err
	}
	if _, err := st.Run(ctx, "kill", "-KILL", agent); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	jobs := 0
	err = st.Wait(wait, "the restarted agent to show the jobs", func() bool {
		now, err := st.mainPID(wait, "gpuslotd.service")
		if err != nil || now == agent || now == "0" {
			return false
		}
		s, err := st.Status(wait)
		if err != nil {
			return false
		}
		jobs = 0
		for _, g := range s.GPUs {
			for _, j := range g.Jobs {
				if strings.HasPrefix(j.ID, strconv.Itoa(cluster)+".") && j.BudgetMiB == 6144 {
					jobs++
				}
			}
		}
		return jobs == 4
	})
	st.Check(err == nil, "the restarted agent knows %d of 4 running jobs and their budgets", jobs)
	same, err := st.mainPID(ctx, unit(u))
	if err != nil {
		return err
	}
	st.Check(same == daemon, "the control daemon of %s lived on (pid %s)", u, same)
	if err := errors.Join(release(), st.waitJobs(ctx, cluster, completed)); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts")
	if err != nil {
		return err
	}
	once := len(rows) == 4
	for _, row := range rows {
		once = once && row[0] == "0" && row[1] == "1"
	}
	st.Check(once, "the jobs ran on to their end, each started once")
	return nil
}

func agentDead(ctx context.Context, st *Stage) error {
	if _, err := st.Run(ctx, "systemctl", "stop", "gpuslotd.socket", "gpuslotd.service"); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "restart", "condor.service"); err != nil {
		return err
	}
	if err := st.StartCondor(ctx); err != nil {
		return err
	}
	if err := st.WaitSlots(ctx, len(st.Inventory.GPUs)); err != nil {
		return err
	}
	cluster, err := st.submit(ctx, job{Lines: vram(4000)})
	if err != nil {
		return err
	}
	stays, err := st.staysIdle(ctx, cluster, 10*time.Second)
	if err != nil {
		return err
	}
	st.Check(stays, "with the agent dead and the startd restarted, job %d is not matched", cluster)
	accept, reason := st.slotAccepts(ctx, st.Inventory.GPUs[0].UUID)
	st.Check(!accept, "the slots say: %s", reason)
	if _, err := st.Run(ctx, "systemctl", "start", "gpuslotd.socket", "gpuslotd.service"); err != nil {
		return err
	}
	err = st.waitJobs(ctx, cluster, completed)
	st.Check(err == nil, "with the agent back, job %d ran", cluster)
	return err
}
