package closures

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
)

// TestCloseRefused: what names no GPU, or has no reason or owner, closes nothing.
func TestCloseRefused(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: gpuA, Index: 0}}}
	for name, c := range map[string]struct {
		req  api.Request
		says string
	}{
		"all is right":  {api.Request{GPU: "0", Reason: "a fan"}, ""},
		"no such GPU":   {api.Request{GPU: "7", Reason: "a fan"}, "there is no GPU"},
		"a wrong owner": {api.Request{GPU: "0", Owner: "a b", Reason: "a fan"}, "a b"},
		"no reason":     {api.Request{GPU: "0"}, "reason"},
	} {
		noted := &events{}
		o := Operator{Table: NewTable(filepath.Join(t.TempDir(), "holds.json")), Events: noted, Log: slog.New(slog.DiscardHandler)}
		got, err := o.Close(p, c.req)
		closed := len(o.Table.On(gpuA))
		if c.says == "" {
			if err != nil || closed != 1 || len(got.Devices) != 1 || len(got.Text) != 1 || len(*noted) != 1 {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || closed != 0 || len(got.Devices)+len(*noted) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
