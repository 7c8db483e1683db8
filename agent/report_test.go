package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestClosuresAreLogged: once when a GPU closes and once when it opens. A MIG device that is not there has no word.
func TestClosuresAreLogged(t *testing.T) {
	const u = gpu.UUID("GPU-1")
	shared, whole := plan.GPU{UUID: u, Mode: config.ModeMPS}, plan.GPU{UUID: u, Mode: config.ModeWhole}
	alone, there, absent := shared, shared, shared
	alone.Mode, alone.Parent = config.ModeMIG, "GPU-2"
	there.Place, there.Device = "1g.5gb@0", "MIG-1"
	absent.Place = "1g.5gb@0"
	for name, c := range map[string]struct {
		gpu         plan.GPU
		before, now string
		held        bool
		want        string
	}{
		"closed":           {shared, "", "Xid 79", false, "GPU closed"},
		"opened":           {shared, "Xid 79", "", false, "GPU opened"},
		"still closed":     {shared, "Xid 79", "Xid 48", false, ""},
		"still open":       {shared, "", "", false, ""},
		"held":             {shared, "Xid 79", "", true, "GPU would be open, but is held"},
		"closed, and held": {shared, "", "Xid 79", true, "GPU closed"},
		"a MIG device":     {alone, "", "Xid 79", false, "GPU closed"},
		"a whole GPU":      {whole, "", "Xid 79", false, ""},
		"its place":        {there, "", "Xid 79", false, "GPU closed"},
		"not its place":    {absent, "", "no such layout", false, ""},
	} {
		var log strings.Builder
		r := reporter{history: history.NewWriter(config.Paths{}, slog.New(slog.DiscardHandler)), log: slog.New(slog.NewTextHandler(&log, nil))}
		r.closures(&view{reasons: map[gpu.UUID]string{u: c.before}},
			&view{plan: plan.Plan{GPUs: []plan.GPU{c.gpu}}, reasons: map[gpu.UUID]string{u: c.now}, held: map[gpu.UUID]bool{u: c.held}})
		if lines := strings.Count(log.String(), "\n"); (c.want == "") != (lines == 0) || lines > 1 || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: %q, want %q", name, log.String(), c.want)
		}
	}
}

// TestSummary: the service manager's line.
func TestSummary(t *testing.T) {
	shared := []plan.GPU{{UUID: "GPU-1", Mode: config.ModeMPS}, {UUID: "GPU-2", Mode: config.ModeMPS}, {UUID: "GPU-3", Mode: config.ModeWhole}}
	parts := []plan.GPU{{UUID: "MIG-1", Parent: "GPU-1", Mode: config.ModeMPS}, {UUID: "MIG-2", Parent: "GPU-1", Mode: config.ModeMIG}}
	for want, v := range map[string]view{
		"no plan yet: no driver":           {closed: "no driver"},
		"no GPU takes jobs: no driver":     {planned: true, closed: "no driver"},
		"not observing: no driver":         {planned: true, closed: "no driver", plan: plan.Plan{Observe: true}},
		"3 GPUs observed":                  {planned: true, plan: plan.Plan{Observe: true, GPUs: shared}},
		"3 GPUs, 2 shared, 2 of them open": {planned: true, plan: plan.Plan{GPUs: shared}},
		"3 GPUs, 2 shared, 1 of them open": {planned: true, plan: plan.Plan{GPUs: shared}, reasons: map[gpu.UUID]string{"GPU-1": "x", "GPU-3": "x"}},
		"3 GPUs, 2 shared, 0 of them open; the last configuration was rejected": {planned: true, plan: plan.Plan{GPUs: shared}, configError: "x",
			reasons: map[gpu.UUID]string{"GPU-1": "x"}, held: map[gpu.UUID]bool{"GPU-2": true}},
		"1 GPUs, 1 of them in MIG mode; 2 GPUs and MIG devices, 1 shared, 1 of them open": {planned: true,
			plan: plan.Plan{GPUs: parts, MIG: []plan.MIGGPU{{UUID: "GPU-1"}}}},
	} {
		if got := v.summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestReadConfig: a file that can be used waits for a plan; one that cannot leaves the last in force.
func TestReadConfig(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1000, 0)
	file := filepath.Join(dir, "gpuslot.toml")
	paths := "[paths]\nrun = \"" + dir + "/run\"\nstate = \"" + dir + "/state\"\n"
	var v view
	for _, c := range []struct{ name, text, err string }{
		{"the first", paths, ""},
		{"a wrong key", paths + "x = 1\n", "x"},
		{"as before", paths, ""},
		{"another run directory", strings.Replace(paths, "/run", "/run2", 1), "cannot change while gpuslotd runs"},
		{"another state directory", strings.Replace(paths, "/state", "/state2", 1), "cannot change while gpuslotd runs"},
		{"another value", paths + "[sharing]\nshares = 3\n", ""},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		v.readConfig(file, now)
		good := c.err == ""
		if v.pending != good || v.configOK != good || (v.configError == "") != good || !strings.Contains(v.configError, c.err) || !v.configRead.Equal(now) {
			t.Errorf("%s: pending %t, read %t, %q", c.name, v.pending, v.configOK, v.configError)
		}
		if v.next.Paths.Run != dir+"/run" || v.next.Paths.State != dir+"/state" {
			t.Errorf("%s: %+v", c.name, v.next.Paths)
		}
		if good {
			v.config, v.pending = v.next, false
		}
		now = now.Add(time.Second)
	}
}

func TestProblems(t *testing.T) {
	var v view
	v.problem(nil, errors.New("one"), nil, errors.New("two"))
	if len(v.problems) != 2 || v.problems[0] != "one" || v.problems[1] != "two" {
		t.Errorf("%q", v.problems)
	}
	if v.closed = "no driver"; v.noStart() != "no GPU of this node takes jobs yet: no driver" {
		t.Errorf("%q", v.noStart())
	}
	if v.planned = true; v.noStart() != "" {
		t.Errorf("%q", v.noStart())
	}
}

// TestChangesAreLogged: what a round found is logged when it is new. The service manager hears of each round.
func TestChangesAreLogged(t *testing.T) {
	var log strings.Builder
	to := slog.New(slog.NewTextHandler(&log, nil))
	m := &fakeManager{}
	r := reporter{history: history.NewWriter(config.Paths{}, to), heart: &heart{manager: m, log: to}, before: &before{}, log: to}
	at := time.Unix(1000, 0)
	planned := func(applied time.Time, problems ...string) *view {
		return &view{planned: true, applied: applied, problems: problems, plan: plan.Plan{Schema: plan.Schema, Warnings: []string{"a warning"}}}
	}
	closed, rejected := planned(at), planned(at)
	closed.closed, rejected.configError = "no driver", "a wrong key"
	for name, c := range map[string]struct {
		old, new *view
		want     []string
	}{
		"nothing":        {planned(at, "a"), planned(at, "a"), nil},
		"no plan":        {&view{}, &view{applied: at}, nil},
		"the first plan": {&view{}, planned(at), []string{"The node's first plan", "a warning"}},
		"an equal plan":  {planned(at), planned(at.Add(1)), []string{"a warning"}},
		"a problem":      {planned(at, "a"), planned(at, "a", "b"), []string{"msg=problem err=b"}},
		"it closes":      {planned(at), closed, []string{"no GPU takes jobs"}},
		"still closed":   {closed, closed, nil},
		"it opens":       {closed, planned(at), []string{"GPUs are offered again"}},
		"rejected":       {planned(at), rejected, []string{"configuration rejected"}},
		"still rejected": {rejected, rejected, nil},
		"mended":         {rejected, planned(at), nil},
	} {
		log.Reset()
		m.said = nil
		r.changes(c.old, c.new)
		lines := strings.Count(log.String(), "\n")
		for _, want := range c.want {
			if !strings.Contains(log.String(), want) {
				lines = -1
			}
		}
		if lines != len(c.want) || len(m.said) != 1 {
			t.Errorf("%s: logged %s, want %q; told %q", name, log.String(), c.want, m.said)
		}
	}
}

// TestNewsOfAPlan: the first plan of an agent is compared with that of the agent before it.
func TestNewsOfAPlan(t *testing.T) {
	two := plan.Plan{Schema: plan.Schema, GPUs: []plan.GPU{{UUID: "GPU-1"}, {UUID: "GPU-2"}}}
	one := plan.Plan{Schema: plan.Schema, GPUs: two.GPUs[:1]}
	for name, c := range map[string]struct {
		before plan.Plan
		old    view
		want   int // lines, besides that of a first plan
	}{
		"the first":                {plan.Plan{}, view{}, 0},
		"after an agent with one":  {one, view{}, 1},
		"after an agent with both": {two, view{}, 0},
		"after one with one":       {two, view{planned: true, plan: one}, 1},
	} {
		r := reporter{before: &before{plan: c.before}}
		news := r.newsOf(&c.old, &view{planned: true, plan: two})
		first := len(news) == 1 && strings.HasPrefix(news[0], "The node's first plan, for 2 GPUs")
		if first != (name == "the first") || !first && len(news) != c.want {
			t.Errorf("%s: %q", name, news)
		}
	}
}
