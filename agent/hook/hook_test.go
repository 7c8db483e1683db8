package hook

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestManyBinds: a job with more binds than are read is refused with the reason before anything is
// asked, also where the site's environment has them.
func TestManyBinds(t *testing.T) {
	const ad = "ClusterId = 7\nProcId = 0\nOwner = \"alice\"\nEnvironment = \"%s\"\n"
	for name, tt := range map[string]struct {
		environment string
		args        []string
		asked       bool
	}{
		"none":       {"A=b", nil, true},
		"some":       {"APPTAINER_BIND=" + strings.Repeat("/a,", 999), nil, true},
		"too many":   {"SINGULARITY_BIND=" + strings.Repeat("/a,", 1000), nil, false},
		"the site's": {"A=b", []string{"APPTAINER_BIND=" + strings.Repeat("/a,", 1000)}, false},
	} {
		asked := false
		out := string(Answer(api.Hook{Ad: fmt.Sprintf(ad, tt.environment), Args: tt.args}, func(*api.Job) (api.Reply, error) {
			asked = true
			return api.Reply{Grant: &api.Grant{}}, nil
		}))
		if asked != tt.asked || strings.Contains(out, "BIND has 1001 entries") == tt.asked {
			t.Errorf("%s: asked %t, the hook prints %.200q", name, asked, out)
		}
	}
}
