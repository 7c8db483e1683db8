package here

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
)

func TestText(t *testing.T) {
	use, sms := int64(1234), 20
	for name, c := range map[string]struct {
		here api.Here
		want string
	}{
		"a share": {api.Here{Slot: "slot1_2", Job: "12.0", GPUs: []api.HereGPU{{UUID: "GPU-1", Name: "Tesla V100S", BudgetMiB: 4096, UseMiB: &use, EnforcedBy: "watch", SMs: &sms, Neighbours: 3}}},
			`slot1_2, job 12.0
GPU    NAME         BUDGET/MiB  USED/MiB  NEIGHBOURS  ENFORCED BY
GPU-1  Tesla V100S  4096        1234      3           watch, 20 SMs
enforced by watch: what all processes have together is watched; a job above its budget is held by HTCondor
`},
		"nothing known, to be held": {api.Here{Slot: "slot1_2", Hold: "used 9 MiB", GPUs: []api.HereGPU{{UUID: "GPU-1", BudgetMiB: 4096, EnforcedBy: "new"}}},
			`slot1_2
GPU    NAME  BUDGET/MiB  USED/MiB  NEIGHBOURS  ENFORCED BY
GPU-1  -     4096        ?         0           new
HTCondor is about to hold this job: used 9 MiB
`},
		"none": {api.Here{Slot: "slot3_1", Job: "7.1"},
			"slot3_1, job 7.1\nthe job has no GPU, nor a part of one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			Text(&b, c.here)
			if diff := cmp.Diff(c.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
