package scenes

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/site"
)

// Two accounts of one accounting group meet on a GPU whose control daemon
// serves several accounts, another group waits, and START knows the group
// through a restart of the agent. The driver is 555, the first that can.
func TestTenantsByGroup(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{Branch: "555", Config: "[sharing]\ntenancy = \"multi-user\"\ntenant = \"accounting-group\"\n"})
	must(t, st.WaitAccept(ctx, 1))
	u := st.Inventory.GPUs[0].UUID
	of := func(group string, lines ...string) job {
		return job{Seconds: 45, Lines: append(vram(2048, "accounting_group = "+group), lines...)}
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

	must(t, st.waitJobs(ctx, third, completed))
	text, err := st.printed(ctx, "bob", third, 0)
	must(t, err)
	st.Contains(text, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "the environment of a job that asks for 30 %")
	must(t, st.waitJobs(ctx, other, running))
	must(t, st.waitTenant(ctx, u, "lhcb"))
	ads, err := st.Run(ctx, "condor_status", "-af", "GPUSlotMPS")
	must(t, err)
	st.Contains(ads.Stdout, "privilege-checks, pid-file, multi-user", "GPUSlotMPS in the slot ads")
	done(t, st)
}
