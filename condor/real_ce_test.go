package condor

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// ceRule is what HTCondor-CE does to a routed job whose Requirements are true
// (its transform Base), in the syntax of the access point's transforms.
const ceRule = `
JOB_TRANSFORM_CEBase @=end
   EVALMACRO all unparse(Requirements) == "true"
   if $(all)
      SET Requirements (RequestGpus ?: 0) >= (TARGET.Gpus ?: 0)
   endif
@end
JOB_TRANSFORM_NAMES = CEBase
`

var ceBlock = regexp.MustCompile("(?s)```htcondor-ce\n(.*?)```")

// A routed job with one GPU never fits a slot with eight shares by the CE's own
// rule; with the lines of docs/sites.md it does, and everything else stays.
func TestRealCERule(t *testing.T) {
	h := realHTCondor(t)
	page, err := os.ReadFile("../docs/sites.md")
	if err != nil {
		t.Fatal(err)
	}
	block := ceBlock.FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/sites.md has no lines for HTCondor-CE")
	}
	ours := strings.NewReplacer("JOB_ROUTER_POST_ROUTE_TRANSFORM_NAMES", "JOB_TRANSFORM_NAMES", "JOB_ROUTER_TRANSFORM_", "JOB_TRANSFORM_").Replace(string(block[1]))
	const gpu, cpu, own = "RequestGPUs = 1\nRequirements = true\n", "Requirements = true\n", "RequestGPUs = 1\nRequirements = TARGET.Arch == \"X86_64\"\n"
	const shares, none = "GPUs = 8", "Cpus = 1"
	for _, c := range []struct{ name, config, job, slot, want string }{
		{"the CE's rule", ceRule, gpu, shares, "false"},
		{"with ours", ceRule + ours, gpu, shares, "true"},
		{"with ours, a slot without GPUs", ceRule + ours, gpu, none, "false"},
		{"with ours, a job without GPUs", ceRule + ours, cpu, shares, "false"},
		{"with ours, a job without GPUs elsewhere", ceRule + ours, cpu, none, "true"},
		{"with ours, requirements of its own", ceRule + ours, own, `Arch = "X86_64"`, "true"},
		{"with ours, requirements of its own not met", ceRule + ours, own, shares + `; Arch = "ppc"`, "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.write(t, "config.d/60-ce.conf", c.config)
			names := strings.Join(strings.Fields(h.value(t, "JOB_TRANSFORM_NAMES")), ",")
			ad := transformed(h.run(t, "condor_transform_ads", "-jobtransforms", names, h.write(t, "job.ad", "ClusterId = 1\nProcId = 0\n"+c.job)))
			_, expr, _ := strings.Cut(ad, "Requirements = ")
			expr, _, _ = strings.Cut(expr, "\n")
			if got := h.evaluate(t, ad+"\n", c.slot, expr); got != c.want {
				t.Errorf("%s on %s: %s, want %s", expr, c.slot, got, c.want)
			}
		})
	}
}
