package condor

import (
	"fmt"
	"strings"
	"testing"
)

func TestBinds(t *testing.T) {
	const pipes = "/run/gpuslot/mps/GPU-1"
	for name, c := range map[string]struct{ apptainer, singularity, want string }{
		"none":              {"", "", pipes},
		"one":               {"/cvmfs", "", "/cvmfs," + pipes},
		"the other":         {"", "/cvmfs:/cvmfs:ro", "/cvmfs:/cvmfs:ro," + pipes},
		"both":              {"/cvmfs,/data", "/data, /home", "/cvmfs,/data,/home," + pipes},
		"there already":     {pipes, "", pipes},
		"there, read-only":  {pipes + "::ro", "", pipes + "::ro"},
		"elsewhere":         {pipes + ":/mine", "", pipes + ":/mine," + pipes},
		"its beginning":     {pipes + "0", "", pipes + "0," + pipes},
		"commas and blanks": {",, /a ,", "", "/a," + pipes},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"APPTAINER_BIND": c.apptainer, "SINGULARITY_BIND": c.singularity}
			got := Binds(func(n string) string { return env[n] }, pipes)
			if got["APPTAINER_BIND"] != c.want || got["SINGULARITY_BIND"] != c.want || len(got) != 2 {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
	if got := Binds(func(string) string { return "" }); len(got) > 0 {
		t.Errorf("nothing to bind: %q", got)
	}
}

// TestManyBinds: each entry costs as much as the one before.
func TestManyBinds(t *testing.T) {
	cost := func(entries int) float64 {
		var all []string
		for i := range entries {
			all = append(all, fmt.Sprint("/", i))
		}
		text := strings.Join(all, ",")
		return testing.AllocsPerRun(5, func() { Binds(func(string) string { return text }, "/run/p") })
	}
	if few, many := cost(100), cost(400); many > 5*few {
		t.Errorf("100 entries take %v allocations, 400 take %v", few, many)
	}
}

// FuzzBinds: what an environment asked for stays, ours is there, and a second
// time changes nothing.
func FuzzBinds(f *testing.F) {
	f.Add("/cvmfs", "/data:/d:ro")
	f.Add(",,", ":")
	f.Fuzz(func(t *testing.T, a, s string) {
		const ours = "/run/p"
		once := Binds(func(n string) string { return map[string]string{"APPTAINER_BIND": a, "SINGULARITY_BIND": s}[n] }, ours)
		have := map[string]bool{}
		for e := range strings.SplitSeq(once["APPTAINER_BIND"], ",") {
			have[destination(e)] = true
		}
		for e := range strings.SplitSeq(a+","+s+","+ours, ",") {
			if e = strings.TrimSpace(e); e != "" && !have[destination(e)] {
				t.Errorf("%q is lost: %q", e, once)
			}
		}
		twice := Binds(func(n string) string { return once[n] }, ours)
		if twice["APPTAINER_BIND"] != once["APPTAINER_BIND"] || once["APPTAINER_BIND"] != once["SINGULARITY_BIND"] {
			t.Errorf("%q, then %q", once, twice)
		}
	})
}
