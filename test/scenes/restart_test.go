package scenes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// What is restarted under jobs. Leg of all: real.

// lease is how long an access point waits for a node that is gone before the
// job runs elsewhere; 40 minutes by default.
const lease = "job_lease_duration = 20"

// load fills the node with jobs on shared GPUs and one without a GPU, which run while
// the file hold is there.
func (st *Stage) load(ctx context.Context, hold string) (shared, cpu int, err error) {
	if shared, err = st.submit(ctx, job{Hold: hold, Lines: vram(4000, lease), Queue: "queue 4"}); err != nil {
		return shared, cpu, err
	}
	if cpu, err = st.submit(ctx, job{Hold: hold, Lines: []string{lease}}); err != nil {
		return shared, cpu, err
	}
	return shared, cpu, st.waitLoad(ctx, shared, cpu, 1)
}

// waitLoad waits until each job of a load has started so many times.
func (st *Stage) waitLoad(ctx context.Context, shared, cpu, starts int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, fmt.Sprintf("%d starts of five jobs", starts), func() bool {
		a, _ := st.JobLog(ctx, shared)
		b, _ := st.JobLog(ctx, cpu)
		return strings.Count(a, executing) == 4*starts && strings.Count(b, executing) == starts
	})
}

// ranAgain checks that jobs which were ended with their slots ran to their end later.
func (st *Stage) ranAgain(ctx context.Context, cluster int, what string) error {
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitCode")
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range rows {
		if r[0] != "0" {
			failed++
		}
	}
	// NumJobStarts is no witness: a schedd that is killed forgets the last ones.
	log, err := st.JobLog(ctx, cluster)
	starts := strings.Count(log, executing)
	st.Check(failed == 0 && starts == 2*len(rows), "%s went back to the queue and ran again: %d jobs, %d starts, %d ended badly", what, len(rows), starts, failed)
	return err
}

// asBefore checks that no slot is left wrong: none taken, all shares there, all
// GPUs open, nothing booked, nothing pending.
func (st *Stage) asBefore(ctx context.Context, slots string) error {
	if err := st.WaitAccept(ctx, len(st.Inventory.GPUs)); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var now string
	err := st.Wait(wait, "the slots as they were", func() bool {
		out, err := st.Run(wait, "condor_status", "-af", "Name", "GPUs", "VRAM", "Cpus", "State")
		now = out.Stdout
		return err == nil && now == slots
	})
	st.Check(err == nil, "the slots are as they were before: %s", oneLine(now))
	s, err := st.Status(ctx)
	if err != nil {
		return err
	}
	jobs := 0
	for _, g := range s.GPUs {
		jobs += len(g.Jobs)
	}
	st.Check(jobs == 0 && len(s.Changes) == 0, "the agent has %d jobs in its books, and %d changes wait", jobs, len(s.Changes))
	return nil
}

// waitRetiring waits until the startd lets the jobs of its slots end.
func (st *Stage) waitRetiring(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, "five slots that retire", func() bool {
		out, err := st.Run(ctx, "condor_status", "-direct", "", "-af", "Activity")
		return err == nil && strings.Count(out.Stdout, "Retiring") == 5
	})
}

func (st *Stage) slots(ctx context.Context) (string, error) {
	out, err := st.Run(ctx, "condor_status", "-af", "Name", "GPUs", "VRAM", "Cpus", "State")
	return out.Stdout, err
}

// HTCondor lets jobs end in their retirement time when its startd restarts, and
// ends them at once with -fast or when its service restarts: these go back to the
// queue and run again. Control daemons know nothing of it.
func TestRestarts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{})
	must(t, st.WaitAccept(ctx, 2))
	before, err := st.slots(ctx)
	must(t, err)
	daemon, err := st.mainPID(ctx, unit(st.Inventory.GPUs[0].UUID))
	must(t, err)
	for _, restart := range []struct {
		command string
		starts  int
		after   func(ctx context.Context, cluster int, what string) error
	}{
		{"condor_restart -startd", 1, st.untouched},
		{"condor_restart -fast -startd", 2, st.ranAgain},
		{"systemctl restart condor.service", 2, st.ranAgain},
	} {
		hold, release := holdFor(t, st, "restart")
		shared, cpu, err := st.load(ctx, hold)
		must(t, err)
		_, err = st.Run(ctx, strings.Fields(restart.command)...)
		must(t, err)
		if restart.starts == 1 {
			must(t, st.waitRetiring(ctx))
		}
		must(t, st.waitLoad(ctx, shared, cpu, restart.starts))
		release()
		must(t, restart.after(ctx, shared, restart.command+": a job on a shared GPU"))
		must(t, restart.after(ctx, cpu, restart.command+": the job without a GPU"))
		must(t, st.asBefore(ctx, before))
	}
	same, err := st.mainPID(ctx, unit(st.Inventory.GPUs[0].UUID))
	must(t, err)
	st.Check(same == daemon, "the control daemon lived on (pid %s)", same)
	done(t, st)
}

// A reboot under jobs: control daemons are there before HTCondor, a GPU that an
// operator closed is still closed, what was known is still known, jobs run again.
func TestReboot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{Recorded: true})
	must(t, st.WaitAccept(ctx, 2))
	_, err := st.Run(ctx, "systemctl", "enable", "gpuslotd.socket", "gpuslotd.service", "condor.service")
	must(t, err)
	before, err := st.slots(ctx)
	must(t, err)
	first, err := st.complete(ctx, pinned(st.Inventory.GPUs[0].UUID, 1))
	must(t, err)
	closed := st.Inventory.GPUs[1].UUID
	hold, release := holdFor(t, st, "reboot")
	shared, cpu, err := st.load(ctx, hold)
	must(t, err)
	_, err = st.Run(ctx, "gpuslot", "gpu", "close", string(closed), "--reason", "a fan is to be replaced")
	must(t, err)
	undo, err := st.ReadFile(ctx, "/var/lib/gpuslot/undo.json")
	must(t, err)

	must(t, st.Reboot(ctx))
	release()
	must(t, st.StartCondor(ctx)) // systemd has started it: this waits until it answers
	must(t, st.waitSlot(ctx, closed, false))
	order, err := st.Run(ctx, "systemctl", "show", "--value", "-p", "ActiveEnterTimestampMonotonic", unit(closed), "gpuslotd.service", "condor.service")
	must(t, err)
	var daemon, agent, htcondor int64
	_, err = fmt.Sscan(order.Stdout, &daemon, &agent, &htcondor)
	must(t, err)
	st.Check(0 < daemon && daemon < agent && agent < htcondor, "started in this order: control daemon %d, gpuslotd %d, HTCondor %d (µs)", daemon, agent, htcondor)
	s, err := st.Status(ctx)
	must(t, err)
	for _, g := range s.GPUs {
		if g.UUID == string(closed) {
			st.Check(!g.Accept && strings.Contains(g.Reason, "a fan is to be replaced"), "GPU 1 is still closed: %s", g.Reason)
		}
	}
	after, err := st.ReadFile(ctx, "/var/lib/gpuslot/undo.json")
	must(t, err)
	st.Check(after == undo, "what is to be undone one day is still known: %s", oneLine(after))
	out, err := st.Run(ctx, "gpuslot", "why", fmt.Sprintf("%d.0", first))
	must(t, err)
	st.Contains(out.Stdout, "admitted", "gpuslot why of a job from before")
	_, err = st.Run(ctx, "gpuslot", "gpu", "open", string(closed))
	must(t, err)
	must(t, st.ranAgain(ctx, shared, "a job on a shared GPU"))
	must(t, st.ranAgain(ctx, cpu, "the job without a GPU"))
	must(t, st.asBefore(ctx, before))
	done(t, st)
}
