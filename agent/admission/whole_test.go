package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

const migDevice = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")

// wholes is a plan of two GPUs of different size, one of unknown size, a place with a MIG device, and that device.
func wholes() *plan.Plan {
	return &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Memory: 32768}, {UUID: uuid(1), Memory: 16384}, {UUID: uuid(2)},
		{UUID: uuid(3), Place: "1g.5gb@0", Device: migDevice, Memory: 4864}, {UUID: migDevice, Memory: 4864}}}
}

// TestGrantWhole: the job sees its GPUs alone, and the memory of the smallest that is known.
func TestGrantWhole(t *testing.T) {
	for name, c := range map[string]struct {
		gpus    []gpu.UUID
		visible string
		vram    string
		by      string
	}{
		"none":              {nil, "", "", jobs.EnforcedByNone},
		"one":               {[]gpu.UUID{uuid(0)}, string(uuid(0)), "32768", jobs.EnforcedByWhole},
		"the larger first":  {[]gpu.UUID{uuid(0), uuid(1)}, string(uuid(0)) + "," + string(uuid(1)), "16384", jobs.EnforcedByWhole},
		"the smaller first": {[]gpu.UUID{uuid(1), uuid(0)}, string(uuid(1)) + "," + string(uuid(0)), "16384", jobs.EnforcedByWhole},
		"one is unknown":    {[]gpu.UUID{uuid(2), uuid(0)}, string(uuid(2)) + "," + string(uuid(0)), "32768", jobs.EnforcedByWhole},
		"it is unknown":     {[]gpu.UUID{uuid(2)}, string(uuid(2)), "", jobs.EnforcedByWhole},
		"not planned":       {[]gpu.UUID{uuid(7)}, string(uuid(7)), "", jobs.EnforcedByWhole},
		"a place":           {[]gpu.UUID{uuid(3)}, string(migDevice), "4864", jobs.EnforcedByWhole},
		"a MIG device":      {[]gpu.UUID{migDevice}, string(migDevice), "4864", jobs.EnforcedByMIG},
	} {
		got := State{Plan: wholes()}.grantWhole(c.gpus)
		want := map[string]string{}
		if c.visible != "" {
			want = map[string]string{"CUDA_VISIBLE_DEVICES": c.visible, "GPUSLOT_GPU": c.visible, "GPUSLOT_ENFORCED_BY": c.by}
		}
		if c.vram != "" {
			want["GPUSLOT_VRAM_MIB"] = c.vram
		}
		if c.by == jobs.EnforcedByMIG {
			want["NVIDIA_VISIBLE_DEVICES"] = c.visible
		}
		if d := cmp.Diff(want, got.Environment); d != "" || got.EnforcedBy != c.by {
			t.Errorf("%s: by %s (-want +got):\n%s", name, got.EnforcedBy, d)
		}
	}
}

// TestClaims: a starter gets the GPUs that it holds, and no GPU that another one's job still has.
func TestClaims(t *testing.T) {
	own := starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	other := starter.Starter{ID: process.ID{PID: 101, Started: 1}, Slot: "slot1_2"}
	on := func(s starter.Starter, n int, budget gpu.MiB) jobs.Job {
		return jobs.Job{Starter: s, GPU: uuid(n), Budget: budget}
	}
	for name, c := range map[string]struct {
		held  []jobs.Job
		whole []gpu.UUID
		fails bool
	}{
		"nothing is held":   {nil, []gpu.UUID{uuid(0)}, false},
		"its own":           {[]jobs.Job{on(own, 0, 0)}, []gpu.UUID{uuid(0)}, false},
		"one of its own":    {[]jobs.Job{on(own, 0, 0), on(own, 1, 0)}, []gpu.UUID{uuid(1)}, false},
		"another":           {[]jobs.Job{on(own, 0, 0)}, []gpu.UUID{uuid(1)}, true},
		"its own and more":  {[]jobs.Job{on(own, 0, 0)}, []gpu.UUID{uuid(0), uuid(1)}, true},
		"none of its own":   {[]jobs.Job{on(own, 0, 0)}, nil, false},
		"another of two":    {[]jobs.Job{on(own, 0, 0), on(own, 1, 0)}, []gpu.UUID{uuid(2)}, true},
		"both of two held ": {[]jobs.Job{on(own, 0, 0), on(own, 1, 0)}, []gpu.UUID{uuid(1), uuid(0)}, false},
	} {
		if r := (State{Held: c.held}).claimWhole(c.whole); (r != nil) != c.fails || r != nil && r.Code != api.CodeNotPlanned {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s := State{Running: []jobs.Job{on(own, 0, 0), on(other, 1, 0)}}
	for n, fails := range []bool{false, true, false} {
		if r := s.alone(starter.Caller{Starter: own}, []gpu.UUID{uuid(n)}); (r != nil) != fails || r != nil && r.Code != api.CodeClosed {
			t.Errorf("GPU %d: %+v", n, r)
		}
	}
	g := &plan.GPU{UUID: uuid(0), Pool: 8192, Shares: 3}
	for name, c := range map[string]struct {
		budget, unlisted gpu.MiB
		running          []jobs.Job
		code             int
	}{
		"alone":                {8192, 0, nil, 0},
		"too large":            {8193, 0, nil, api.CodeNotPlanned},
		"beside another":       {4096, 0, []jobs.Job{on(other, 0, 4096)}, 0},
		"too large beside it":  {4097, 0, []jobs.Job{on(other, 0, 4096)}, api.CodeNotPlanned},
		"its own do not count": {8192, 0, []jobs.Job{on(own, 0, 4096), on(own, 0, 4096), on(own, 0, 4096)}, 0},
		"the last share":       {1, 0, []jobs.Job{on(other, 0, 1), on(other, 0, 1)}, 0},
		"no share left":        {1, 0, []jobs.Job{on(other, 0, 1), on(other, 0, 1), on(other, 0, 1)}, api.CodeNotPlanned},
		"beside what is used":  {4096, 4096, nil, 0},
		"that is in its way":   {4097, 4096, nil, api.CodeClosed},
	} {
		r := State{Running: c.running, Health: Health{Unlisted: c.unlisted}}.room(g, starter.Caller{Starter: own}, c.budget)
		if (r != nil) != (c.code != 0) || r != nil && r.Code != c.code {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestEntries: a job is entered once for each GPU, with the device at a place, and its starter's partition.
func TestEntries(t *testing.T) {
	p := newNode(t).Preparer
	enter, undo := p.entries(State{Plan: wholes()}, starter.Caller{UID: 1000}, &api.Job{ID: "7.0"}, nil, []gpu.UUID{uuid(3), uuid(0)}, &api.Grant{EnforcedBy: "x"})
	if undo != nil || len(enter) != 2 || enter[0].GPU != uuid(3) || enter[0].Device != migDevice || enter[1].GPU != uuid(0) || enter[1].Device != "" {
		t.Errorf("%+v", enter)
	}
	if enter[0].EnforcedBy != "x" || enter[1].Account != (starter.Account{UID: 1000, Known: true}) || enter[1].ID != "7.0" {
		t.Errorf("%+v", enter)
	}
}

// written are events.
type written []history.Event

func (w *written) Event(e history.Event) { *w = append(*w, e) }

// TestNote: the hook's question is one event for each planned GPU, or one in all. A job's question is none.
func TestNote(t *testing.T) {
	n := newNode(t)
	planned := n.Node().Plan.GPUs
	one, two := string(planned[0].UUID), string(planned[1].UUID)
	for name, c := range map[string]struct {
		hook bool
		ids  []string
		want []string
	}{
		"a job":           {false, []string{one}, nil},
		"one":             {true, []string{one}, []string{one}},
		"two, in order":   {true, []string{two, one}, []string{one, two}},
		"shares":          {true, []string{one, one}, []string{one}},
		"none":            {true, nil, []string{""}},
		"one not planned": {true, []string{"GPU-x"}, []string{""}},
		"one of two":      {true, []string{"GPU-x", two}, []string{two}},
	} {
		var w written
		n.Events = &w
		n.note(starter.Caller{Hook: c.hook, Starter: starter.Starter{Slot: "slot1_1@wn1"}}, &api.Job{ID: "7.0", AssignedGPUs: c.ids},
			history.EventRefused, strings.Repeat("é", longestNote))
		var got []string
		for _, e := range w {
			got = append(got, string(e.GPU))
			if e.Slot != "slot1_1" || e.Job != "7.0" || len(e.Text) > longestNote+len(" …") || !strings.HasSuffix(e.Text, "é …") {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	grant := &api.Grant{EnforcedBy: "daemon", Environment: map[string]string{"GPUSLOT_VRAM_MIB": "4096"}}
	for want, got := range map[string]string{
		"The job of ada was admitted with 4096 MiB, enforced by daemon.": admittedText(&api.Job{Owner: "ada"}, grant),
		"The job was admitted.": admittedText(&api.Job{}, &api.Grant{}),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
