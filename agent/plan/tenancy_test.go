package plan_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/mps"
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

// A plan of several accounts at once is refused only where the control daemon
// was seen to lack it.
func TestCheckCapabilities(t *testing.T) {
	shared := plan.GPU{UUID: uuid(0), Mode: config.ModeMPS, Tenancy: plan.Tenancy{Policy: config.TenancyMultiUser}}
	whole, alone := shared, shared
	whole.Mode, alone.Tenancy.Policy = config.ModeWhole, config.TenancyOneAtATime
	for _, c := range []struct {
		name  string
		gpu   plan.GPU
		multi mps.Answer
		fails bool
	}{
		{"driver 550", shared, mps.Answer{Known: true}, true},
		{"driver 555", shared, mps.Answer{Known: true, Has: true}, false},
		{"not known", shared, mps.Answer{}, false},
		{"a whole GPU", whole, mps.Answer{Known: true}, false},
		{"one account at a time", alone, mps.Answer{Known: true}, false},
	} {
		err := plan.Plan{Driver: "550.163.01", GPUs: []plan.GPU{c.gpu}}.Check(mps.Capabilities{MultiUser: c.multi})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !strings.HasSuffix(err.Error(), `(driver 550.163.01) serves one account at a time: install driver 555 or newer, or use tenancy = "one-at-a-time" or "common:<user>"`) {
			t.Errorf("%s: %v", c.name, err)
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
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 33.3, Most: 100}, 33.3, 100},
	} {
		g.Threads = c.threads
		if own, _ := g.ThreadPercentage(8000); own != c.own || g.MostThreads(8000) != c.most {
			t.Errorf("%s: %v, at most %v, want %v and %v", c.threads, own, g.MostThreads(8000), c.own, c.most)
		}
	}
}
