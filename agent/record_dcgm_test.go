package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
)

// The directory holds what the jobs of each GPU need, and no more after them.
func TestJobMapping(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Index: 0}, {UUID: uuid(1), Index: 1}, {UUID: uuid(2), Index: 2}}}
	dir := filepath.Join(t.TempDir(), "dcgm")
	contents := func() map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(text)
		}
		return out
	}
	for _, tt := range []struct {
		running []jobs.Job
		want    map[string]string
	}{
		{[]jobs.Job{{GPU: uuid(0), ID: "7.1"}, {GPU: uuid(0), ID: "7.0"}, {GPU: uuid(2), ID: "8.0"}, {GPU: uuid(0), ID: "7.0"}},
			map[string]string{"0": "7.0\n7.1\n", "2": "8.0\n"}},
		{[]jobs.Job{{GPU: uuid(1), ID: "9.0"}, {GPU: uuid(2)}, {GPU: uuid(9), ID: "1.0"}, {GPU: uuid(0), ID: "1\n2"}}, map[string]string{"1": "9.0\n", "README": "ours"}},
		{nil, map[string]string{"README": "ours"}},
	} {
		if err := usage.WriteJobMapping(dir, jobsByIndex(p, tt.running)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, contents()); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if err := os.WriteFile(filepath.Join(dir, "README"), []byte("ours"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
