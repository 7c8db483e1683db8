package condor

import "testing"

// Whether a site's configuration gives jobs cgroups, by HTCondor's own reading.
func TestRealJobCgroups(t *testing.T) {
	h := realHTCondor(t)
	for name, c := range map[string]struct {
		site string
		want bool
	}{
		"the default":       {"", true},
		"another name":      {"BASE_CGROUP = system.slice/condor.service/htcondor\n", true},
		"none":              {"BASE_CGROUP =\n", false},
		"none for starters": {"STARTER.BASE_CGROUP =\n", false},
		"for starters":      {"BASE_CGROUP =\nSTARTER.BASE_CGROUP = htcondor\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			h.write(t, "config.d/90-site.conf", c.site)
			dump := h.value(t, "-dump", "-verbose")
			if got := parseSettings(dump).JobCgroups(); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}
