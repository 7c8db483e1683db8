package condor

import (
	"strings"
	"testing"
)

func TestTenant(t *testing.T) {
	for _, c := range []struct{ key, owner, group, vo, want string }{
		{"", "alice", "cms", "atlas", "alice"},
		{"", "", "cms", "atlas", ""},
		{TenantGroup, "alice", "cms", "atlas", "cms"},
		{TenantGroup, "alice", "", "atlas", "owner:alice"},
		{TenantGroup, "", "", "atlas", ""},
		{TenantVO, "alice", "cms", "atlas", "atlas"},
		{TenantVO, "", "cms", "atlas", "atlas"},
		{TenantVO, "alice", "cms", "", "owner:alice"},
	} {
		if got := Tenant(c.key, c.owner, c.group, c.vo); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRealTenant holds Tenant to START: what the one calls a job is what the
// other compares GPUTenant with.
func TestRealTenant(t *testing.T) {
	h := realHTCondor(t)
	for _, ad := range []string{
		"Owner = \"alice\"\n",
		"Owner = \"alice\"\nAcctGroup = \"cms\"\n",
		"Owner = \"alice\"\nAcctGroup = \"\"\nx509UserProxyVOName = \"atlas\"\n",
		"Owner = \"alice\"\nAcctGroup = undefined\nx509UserProxyVOName = 3.5\n",
	} {
		job, err := ReadJob(strings.NewReader(ad))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{TenantGroup, TenantVO} {
			want := h.evaluate(t, "Name = \"s\"\nWho = "+tenantExpression("TARGET."+tenantAttributes[key])+"\n", ad, "Who")
			if got := Tenant(key, job.Owner, job.Group, job.VO); got != want {
				t.Errorf("%s of %q is %q, and START says %q", key, ad, got, want)
			}
		}
	}
}

func TestJobSaysTenantAndThreads(t *testing.T) {
	for ad, want := range map[string]string{
		"RequestGPUThreads = 30\n":         "30",
		"RequestGPUThreads = 12.5\n":       "12.5",
		"RequestGPUThreads = \"30\"\n":     "\"30\"",
		"RequestGPUThreads = 10 * 3\n":     "10 * 3",
		"RequestGPUThreads = UNDEFINED\n":  "",
		"Owner = \"alice\"\n":              "",
		"requestgputhreads = 7\n":          "7",
		"RequestGPUThreads = 100000e300\n": "100000e300",
	} {
		job, err := ReadJob(strings.NewReader(ad))
		if err != nil || job.RequestThreads != want {
			t.Errorf("%q: %q, %v", ad, job.RequestThreads, err)
		}
	}
}
