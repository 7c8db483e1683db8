package plan_test

import (
	"bytes"
	gocmp "cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

var update = flag.Bool("update", false, "rewrite the scenarios' results; read the difference before you commit it")

// TestScenarios builds the plan of each testdata/*.txtar. Its comment says what
// it shows; gpuslot.toml and inventory.json are the input, and the result is
// plan.txt, plan.json or errors.txt.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := result(t, read(t, archive))
	results := 0
	for i, f := range archive.Files {
		text, ok := got[f.Name]
		if !ok {
			continue
		}
		results++
		if *update {
			archive.Files[i].Data = []byte(text)
		} else if d := cmp.Diff(string(f.Data), text); d != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, d)
		}
	}
	if results != 1 {
		t.Fatalf("the scenario wants %d results of plan.txt, plan.json and errors.txt; the build gave %v", results, keys(got))
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type input struct {
	cfg config.Config
	inv gpu.Inventory
}

func read(t *testing.T, a *txtar.Archive) input {
	t.Helper()
	in := input{cfg: config.Default()}
	for _, f := range a.Files {
		var err error
		switch f.Name {
		case "gpuslot.toml":
			in.cfg, err = config.Parse(f.Name, f.Data)
		case "inventory.json":
			in.inv, err = gpu.DecodeInventory(bytes.NewReader(f.Data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// result is errors.txt, or plan.txt and plan.json.
func result(t *testing.T, in input) map[string]string {
	p, err := plan.Build(in.cfg, in.inv)
	if err != nil {
		return map[string]string{"errors.txt": err.Error() + "\n"}
	}
	encoded, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"plan.txt": show(p, len(in.cfg.Warnings)), "plan.json": string(encoded)}
}

func modeOf(g plan.GPU) string {
	if g.Elastic {
		return "elastic, " + string(g.Mode)
	}
	return string(g.Mode)
}

// show prints a plan so that a person can check it. The words of the
// configuration's own warnings, which come first, are that package's business.
func show(p plan.Plan, ofConfig int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "host: %d CPUs, %s; for jobs without GPUs: %d CPUs, %s\n", p.Host.CPUs, p.Host.Memory, p.CPUOnly.CPUs, p.CPUOnly.Memory)
	fmt.Fprintf(&b, "request_vram: minimum %d, quantum %d, without_request %s\n", p.RequestVRAM.Minimum, p.RequestVRAM.Quantum, p.RequestVRAM.WithoutRequest)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "gpu\tmode\tshares\tpool\tlargest\tdefault\tCPUs\tmemory\tthreads\tcompute mode\ttenancy")
	for _, g := range p.GPUs {
		fmt.Fprintf(w, "%.12s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", g.UUID, modeOf(g), g.Shares, g.Pool, g.LargestRequest, g.DefaultRequest,
			g.Resources.CPUs, g.Resources.Memory, g.Threads, dash(string(g.ComputeMode)), g.Tenancy)
	}
	w.Flush()
	for _, m := range p.MIG {
		fmt.Fprintf(&b, "MIG %.12s: wanted %q%s\n", m.UUID, m.Layouts, because(m.Why))
		for _, c := range m.Costs {
			fmt.Fprintf(&b, "  %s: %d of %d SMs, %d of %d MiB, %d of %d units of bandwidth\n", c.Layout,
				c.Cost.Multiprocessors, c.Cost.AllMultiprocessors, c.Cost.Memory, c.Cost.AllMemory, c.Cost.Units, c.Cost.AllUnits)
		}
	}
	for _, g := range p.GPUs {
		if g.MIGDevice() {
			fmt.Fprintf(&b, "MIG device %.12s: %s of %.12s, now %q, %d SMs%s\n", g.UUID, gocmp.Or(g.Place, g.Profile), g.Parent, g.Device, g.Multiprocessors, because(g.Why))
		} else if g.Why != "" {
			fmt.Fprintf(&b, "chosen %.12s: %s%s\n", g.UUID, g.Mode, because(g.Why))
		}
	}
	for _, d := range p.ControlDaemons() {
		fmt.Fprintf(&b, "control daemon %.12s: limit %d, threads %g\n", d.GPU, d.Limit, d.ThreadPercentage)
	}
	for _, u := range p.Absent {
		fmt.Fprintf(&b, "absent: %s\n", u)
	}
	if ofConfig > 0 {
		fmt.Fprintf(&b, "warnings of the configuration: %d\n", ofConfig)
	}
	for _, s := range p.Warnings[ofConfig:] {
		fmt.Fprintf(&b, "warning: %s\n", s)
	}
	return b.String()
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " because " + why
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestBuildRefusesAnUncheckedConfiguration(t *testing.T) {
	if _, err := plan.Build(config.Config{}, gpu.Inventory{}); err == nil {
		t.Error("Build took the zero Config")
	}
}

// TestTurn: each elastic GPU is on the side that it has now; the others stay as they are.
func TestTurn(t *testing.T) {
	p := plan.Plan{GPUs: []plan.GPU{
		{UUID: "GPU-a", Mode: config.ModeMPS}, {UUID: "GPU-b", Elastic: true}, {UUID: "GPU-c", Mode: config.ModeWhole}, {UUID: "GPU-d", Elastic: true},
	}}
	turned := p.Turn(func(u gpu.UUID) bool { return u == "GPU-a" || u == "GPU-b" })
	for i, want := range []config.Mode{config.ModeMPS, config.ModeWhole, config.ModeWhole, config.ModeMPS} {
		if g := turned.GPUs[i]; g.Mode != want {
			t.Errorf("%s: %s, want %s", g.UUID, g.Mode, want)
		}
	}
	if p.GPUs[1].Mode != "" {
		t.Error("Turn changed its receiver")
	}
}

func TestPlanFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if _, err := plan.Read(filepath.Join(dir, "absent.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing plan file gives %v, want fs.ErrNotExist", err)
	}
	one := `{"uuid": "GPU-00000000-0000-4000-8000-000000000001", "pci_bus_id": "00000000:3B:00.0", "compute_capability": "1.0", "shares": 1, "vram_pool_mib": 1}`
	twice := `{"schema": "gpuslot-plan/1", "gpus": [` + one + ", " + one + "]}"
	for name, c := range map[string]struct{ text, want string }{
		"newer":     {`{"schema": "gpuslot-plan/2", "new_field": 1}`, `made by a newer gpuslot: its schema is "gpuslot-plan/2", this one reads "gpuslot-plan/1"; use the gpuslot that belongs to the running agent`},
		"inventory": {`{"schema": "gpuslot-inventory/1"}`, `not a plan file: its schema is "gpuslot-inventory/1", not "gpuslot-plan/1"`},
		"empty":     {"", "not a plan file: unexpected end of JSON input"},
		"unknown":   {`{"schema": "gpuslot-plan/1", "gpu": []}`, `plan: json: unknown field "gpu"`},
		"twice":     {twice, "plan: gpus[1] has the UUID of another one, GPU-00000000-0000-4000-8000-000000000001"},
		"trailing":  {`{"schema": "gpuslot-plan/1"} {}`, "not a plan file: invalid character '{' after top-level value"},
	} {
		_, err := plan.Read(write(name, c.text))
		if err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s: %v, want …: %s", name, err, c.want)
		}
	}
	head := `{"schema": "gpuslot-plan/1", "gpus": [`
	if _, err := plan.Read(write("whole", head+one+"]}")); err != nil {
		t.Error(err)
	}
	const most = 4 << 20
	long := head + one + "]}" + strings.Repeat(" ", most-len(head+one+"]}"))
	if _, err := plan.Read(write("longest", long)); err != nil {
		t.Error(err)
	}
	if _, err := plan.Read(write("too long", long+" ")); err == nil || !strings.Contains(err.Error(), "larger than 4194304 bytes") {
		t.Error(err)
	}
	fields := strings.Split(strings.Trim(one, "{}"), ", ")
	for i := range fields {
		cut := "{" + strings.Join(slices.Delete(slices.Clone(fields), i, i+1), ", ") + "}"
		if _, err := plan.Read(write("incomplete", head+cut+"]}")); err == nil || !strings.Contains(err.Error(), "gpus[0] is not complete") {
			t.Errorf("%s: %v", cut, err)
		}
	}
}
