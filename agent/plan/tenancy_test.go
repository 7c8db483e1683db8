package plan_test

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
)

func TestTenancyKey(t *testing.T) {
	for _, c := range []struct {
		tenancy plan.Tenancy
		want    config.TenantKey
		text    string
	}{
		{plan.Tenancy{Policy: config.TenancyOneAtATime}, config.TenantAccount, "one-at-a-time"},
		{plan.Tenancy{Policy: config.TenancyCommon, User: "jobs"}, "", "common:jobs"},
		{plan.Tenancy{Policy: config.TenancyCommon, User: "jobs", Tenant: config.TenantGroup}, config.TenantGroup, "common:jobs, by accounting-group"},
		{plan.Tenancy{Policy: config.TenancyMultiUser}, "", "multi-user"},
		{plan.Tenancy{Policy: config.TenancyMultiUser, Tenant: config.TenantVO}, config.TenantVO, "multi-user, by vo"},
	} {
		if got := c.tenancy.Key(); got != c.want || c.tenancy.String() != c.text {
			t.Errorf("%+v: key %q, %s", c.tenancy, got, c.tenancy)
		}
	}
}

func TestMostThreads(t *testing.T) {
	g := plan.GPU{Shares: 8, Pool: 32000}
	for _, c := range []struct {
		threads   plan.Threads
		own, most float64
	}{
		{plan.Threads{Policy: config.ThreadsUncapped}, 100, 100},
		{plan.Threads{Policy: config.ThreadsUncapped, Most: 30}, 100, 100},
		{plan.Threads{Policy: config.ThreadsEqual}, 12.5, 12.5},
		{plan.Threads{Policy: config.ThreadsEqual, Most: 33.3}, 12.5, 33.3},
		{plan.Threads{Policy: config.ThreadsEqual, Most: 10}, 12.5, 12.5},
		{plan.Threads{Policy: config.ThreadsByVRAM, Most: 20}, 25, 25},
		{plan.Threads{Policy: config.ThreadsByVRAM, Most: 40}, 25, 40},
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 33.3}, 33.3, 33.3},
		{plan.Threads{Policy: config.ThreadsPartitioned, Partition: plan.Partition{Chunks: 2, SMs: 16, Unused: 4}}, 12.1, 12.1},
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 33.3, Most: 100}, 33.3, 100},
	} {
		g.Threads = c.threads
		if own, _ := g.ThreadPercentage(8000); own != c.own || g.MostThreads(8000) != c.most {
			t.Errorf("%s: %v, at most %v, want %v and %v", c.threads, own, g.MostThreads(8000), c.own, c.most)
		}
	}
}

// TestUnheldThreads: the plan says where a job can have more than its percentage.
func TestUnheldThreads(t *testing.T) {
	p := plan.Plan{RequestVRAM: plan.RequestVRAM{Minimum: 1600}}
	for i, threads := range []plan.Threads{
		{Policy: config.ThreadsPartitioned, Partition: plan.Partition{Chunks: 2, SMs: 16, Unused: 4}, Most: 50},
		{Policy: config.ThreadsEqual},
		{Policy: config.ThreadsFixed, Percent: 33.3},
		{Policy: config.ThreadsByVRAM},
		{Policy: config.ThreadsEqual, Most: 25},
		{Policy: config.ThreadsEqual, Most: 50},
	} {
		p.GPUs = append(p.GPUs, plan.GPU{Index: i, Mode: config.ModeMPS, Shares: 8, Pool: 32000, LargestRequest: 8000, Threads: threads})
	}
	want := []string{
		"Thread percentages below 25 are not enforced on GPU 3, 4: a job that unsets its own may use up to 25 % of the " +
			"multiprocessors, and gpuslot does not notice.",
		"Thread percentages below 50 are not enforced on GPU 5: a job that unsets its own may use up to 50 % of the " +
			"multiprocessors, and gpuslot does not notice.",
	}
	if got := p.UnheldThreads(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
