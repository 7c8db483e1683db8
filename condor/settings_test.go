package condor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseSettings: a value may have lines of its own, of which none is taken for a knob, and none for the next one's.
func TestParseSettings(t *testing.T) {
	const dump = `# Configuration from machine: n
ONE = $(A)
 # at: /etc/90.conf, line 3
 # expanded: a
 # b
 # default: none
UNKNOWN = $(A)
 # at: /etc/90.conf, line 4
 # of another kind
TABLE @=end
INSIDE = c
 # at: inside
@end
 # at: <Default>
 # expanded: d
# Contributing configuration files:
`
	want := Settings{"one": {Name: "ONE", Value: "a\nb", Place: "/etc/90.conf, line 3"}, "table": {Name: "TABLE", Value: "d"}}
	if diff := cmp.Diff(want, parseSettings(dump)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSettingOf: the startd prefers what is said to it alone.
func TestSettingOf(t *testing.T) {
	all, own := Setting{Name: "A", Value: "1"}, Setting{Name: "STARTD.A", Value: "2"}
	for name, c := range map[string]struct {
		s    Settings
		want Setting
		set  bool
	}{
		"nothing":  {Settings{"b": all}, Setting{}, false},
		"for all":  {Settings{"a": all}, all, true},
		"for it":   {Settings{"startd.a": own}, own, true},
		"for both": {Settings{"a": all, "startd.a": own}, own, true},
	} {
		if got, set := c.s.of("A"); got != c.want || set != c.set {
			t.Errorf("%s: %s, %t", name, got, set)
		}
	}
}

// TestJobCgroups: of settings that are not known HTCondor's default holds.
func TestJobCgroups(t *testing.T) {
	if !(Settings{}).JobCgroups() || (Settings{"base_cgroup": {Value: " "}}).JobCgroups() {
		t.Error("jobs have a cgroup of their own unless its name is empty")
	}
}
