package doctor

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// FuzzParseContract: a job says of itself what it likes, and of gpuslot's
// findings only these words.
func FuzzParseContract(f *testing.F) {
	f.Add("cgroup 0::/x\nenv A=b=c\nparent gpuslot-condor supervise\nscratch writable\npipe reachable\n")
	f.Add("env\n\ncgroup")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseContract(text)
		for line := range c.has {
			if word, _, _ := strings.Cut(line, " "); word != "scratch" && word != "pipe" || !strings.Contains(show.Visible(text), line) {
				t.Errorf("%q from %q", line, text)
			}
		}
		for name, value := range c.env {
			if strings.Contains(name, "=") || !strings.Contains(show.Visible(text), value) {
				t.Errorf("%q=%q from %q", name, value, text)
			}
		}
		if lines := strings.Count(c.cgroup, "\n"); lines > strings.Count(text, "cgroup") {
			t.Errorf("%d lines of cgroups from %q", lines, text)
		}
	})
}
