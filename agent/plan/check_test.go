package plan_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/mps"
)

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
		err := plan.Plan{Driver: "550.163.01", GPUs: []plan.GPU{c.gpu}}.Check(mps.Capabilities{MultiUser: c.multi}, mps.Answer{})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !strings.HasSuffix(err.Error(), `(driver 550.163.01) serves one account at a time: install driver 555 or newer, or use tenancy = "one-at-a-time" or "common:<user>"`) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestCheckLimits: time slices are refused where nothing limits the VRAM of jobs, with the reason.
func TestCheckLimits(t *testing.T) {
	sliced := plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Mode: config.ModeTimeSlice}}}
	no := mps.Answer{Known: true, How: "cgroup v2 has neither the controller dmem nor misc"}
	err := sliced.Check(mps.Capabilities{}, no)
	if err == nil || !strings.Contains(err.Error(), no.How) || !strings.Contains(err.Error(), string(uuid(0))) {
		t.Error(err)
	}
	for _, can := range []mps.Answer{{}, {Known: true, Has: true}} {
		if err := sliced.Check(mps.Capabilities{}, can); err != nil {
			t.Error(err)
		}
	}
	if err := (plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Mode: config.ModeMPS}}}).Check(mps.Capabilities{}, no); err != nil {
		t.Error(err)
	}
}

// So are partitions, and both sentences come at once.
func TestCheckPartitions(t *testing.T) {
	parted := plan.GPU{UUID: uuid(0), Mode: config.ModeMPS, Threads: plan.Threads{Policy: config.ThreadsPartitioned}, Tenancy: plan.Tenancy{Policy: config.TenancyMultiUser}}
	whole, capped := parted, parted
	whole.Mode, capped.Threads.Policy = config.ModeWhole, config.ThreadsEqual
	yes, no := mps.Answer{Known: true, Has: true}, mps.Answer{Known: true}
	for _, c := range []struct {
		name string
		gpu  plan.GPU
		has  mps.Answer
		want string
	}{
		{"driver 555", parted, no, `threads = "partitioned", but the installed control daemon (driver 555.58.02) has no static SM partitions: install driver 590 or newer, or use threads = "equal"`},
		{"driver 590", parted, yes, ""},
		{"not known", parted, mps.Answer{}, ""},
		{"a whole GPU", whole, no, ""},
		{"percentages", capped, no, ""},
	} {
		err := plan.Plan{Driver: "555.58.02", GPUs: []plan.GPU{c.gpu}}.Check(mps.Capabilities{StaticPartitions: c.has}, mps.Answer{})
		if (err == nil) != (c.want == "") || err != nil && err.Error() != string(uuid(0))+": "+c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	err := plan.Plan{GPUs: []plan.GPU{parted}}.Check(mps.Capabilities{StaticPartitions: no, MultiUser: no}, mps.Answer{})
	if err == nil || !strings.Contains(err.Error(), "tenancy") || !strings.Contains(err.Error(), "threads") {
		t.Errorf("both: %v", err)
	}
}
