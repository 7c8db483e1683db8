package scenes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/site"
)

// Two accounts of one accounting group meet on a GPU whose control daemon
// serves several accounts, another group waits, and START knows the group
// through a restart of the agent. The driver is 555, the first that can.
func TestTenantsByGroup(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, exampleNode)
	inv.GPUs, inv.Driver = inv.GPUs[:1], "555.58.02"
	st := newStage(t, 1, site.Options{Branch: "555", Inventory: &inv,
		Config: "[sharing]\ntenancy = \"multi-user\"\ntenant = \"accounting-group\"\n"})
	must(t, st.WaitAccept(ctx, 1))
	u := st.Inventory.GPUs[0].UUID
	cms, endCMS := holdFor(t, st, "cms")
	lhcb, endLHCB := holdFor(t, st, "lhcb")
	of := func(group string, lines ...string) job {
		hold := map[string]string{"cms": cms, "lhcb": lhcb}[group]
		return job{Hold: hold, Lines: append(vram(2048, "accounting_group = "+group), lines...)}
	}
	first, err := st.submitAs(ctx, "alice", of("cms"))
	must(t, err)
	must(t, st.waitJobs(ctx, first, running))
	must(t, st.waitTenant(ctx, u, "cms"))
	second, err := st.submitAs(ctx, "bob", of("cms"))
	must(t, err)
	must(t, st.waitJobs(ctx, second, running))
	other, err := st.submitAs(ctx, "alice", of("lhcb"))
	must(t, err)
	idle, err := st.staysIdle(ctx, other, 8*time.Second)
	must(t, err)
	st.Check(idle, "alice's job of another group waits")

	_, err = st.Run(ctx, "systemctl", "restart", "gpuslotd")
	must(t, err)
	must(t, st.WaitAccept(ctx, 1))
	must(t, st.waitTenant(ctx, u, "cms"))
	third, err := st.submitAs(ctx, "bob", of("cms", "+RequestGPUThreads = 30"))
	must(t, err)
	must(t, st.waitJobs(ctx, third, running))
	now, err := st.statusOf(ctx, u)
	must(t, err)
	st.Check(now.Tenant == "cms" && len(now.Jobs) >= 2, "after a restart the agent knows tenant %s of %d jobs", now.Tenant, len(now.Jobs))

	_, err = st.submitAs(ctx, "alice", of("cms", "+RequestGPUThreads = \"half\""))
	st.Check(err != nil && strings.Contains(err.Error(), "without quotes, such as +RequestGPUThreads = 30"), "half the threads in words are refused at submission: %v", err)

	endCMS()
	must(t, st.waitJobs(ctx, third, completed))
	text, err := st.printed(ctx, "bob", third, 0)
	must(t, err)
	st.Contains(text, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "the environment of a job that asks for 30 %")
	must(t, st.waitJobs(ctx, other, running))
	must(t, st.waitTenant(ctx, u, "lhcb"))
	endLHCB()
	must(t, st.checkWordyTenant(ctx, t, other))
	ads, err := st.Run(ctx, "condor_status", "-af", "GPUSlotMPS")
	must(t, err)
	st.Contains(ads.Stdout, "privilege-checks, pid-file, multi-user", "GPUSlotMPS in the slot ads")
	done(t, st)
}

// checkWordyTenant: a job whose user writes a lot costs its GPU the name of its tenant when
// gpuslotd is started again, and nobody else anything: what its slot has is known.
func (st *Stage) checkWordyTenant(ctx context.Context, t *testing.T, before int) error {
	if err := st.waitJobs(ctx, before, completed); err != nil {
		return err
	}
	path, release := holdFor(t, st, "wordy")
	wordy := fmt.Sprintf("+AcctGroup = ifThenElse(true, \"cms\", \"%s\")", strings.Repeat("g", 10000))
	cluster, err := st.submit(ctx, job{Hold: path, Lines: vram(2048, wordy)})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, running); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd"); err != nil {
		return err
	}
	why := ""
	err = st.waitStatus(ctx, "the job to be known and its tenant not", func(s api.Status) bool {
		g := s.GPUs[0]
		why = g.Reason
		return len(g.Jobs) == 1 && g.Jobs[0].Confirmed && g.Jobs[0].BudgetMiB == 2048 &&
			strings.Contains(why, "its tenant (accounting-group) is not known")
	})
	if err != nil {
		return err
	}
	st.Contains(why, "its ad has more than 8192 bytes that its job's user wrote", "why no other job comes in beside it")
	release()
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	return st.WaitAccept(ctx, 1)
}
