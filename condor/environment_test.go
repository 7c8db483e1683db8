package condor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func variables(e Environment) map[string]string {
	m := map[string]string{}
	for _, name := range e.Names() {
		m[name], _ = e.Lookup(name)
	}
	return m
}

func TestParseEnvironment(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                       {},
		" \t\n":                  {},
		"A=1 B=2":                {"A": "1", "B": "2"},
		"A= B=x=y":               {"A": "", "B": "x=y"},
		"'A=a b'":                {"A": "a b"},
		"A=a' 'b":                {"A": "a b"}, // as 25.14.1 prints it
		"X=it''''s":              {"X": "it's"},
		"'X=it''s' Y='''q'''":    {"X": "it's", "Y": "'q'"},
		`D=q"q B=C:\dir\n`:       {"D": `q"q`, "B": `C:\dir\n`},
		"A=1 A=2":                {"A": "2"},
		"'A=line\nbreak' \r\nB=": {"A": "line\nbreak", "B": ""},
	} {
		e, err := ParseEnvironment(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, variables(e)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"A":         "not of the form NAME=value",
		"A=1 ''":    "not of the form NAME=value",
		"=1":        "not of the form NAME=value",
		"'A=1":      "single quote without its second one",
		"A=it's":    "single quote without its second one",
		"A=1 B='''": "single quote without its second one",
	} {
		if _, err := ParseEnvironment(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

func TestParseEnvironmentV1(t *testing.T) {
	e, err := ParseEnvironmentV1("A=1; B=x y;;C='q';", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "x y", "C": "'q'"}, variables(e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e, _ := ParseEnvironmentV1("A=1;2|B=3", "|"); e.String() != "A=1;2 B=3" {
		t.Errorf("with another delimiter: %s", e)
	}
	if _, err := ParseEnvironmentV1("A", ";"); err == nil {
		t.Error("an entry without = is accepted")
	}
}

func TestEnvironmentWith(t *testing.T) {
	job, err := ParseEnvironment("MINE='a b' CUDA_VISIBLE_DEVICES=7 CUDA_MPS_PIPE_DIRECTORY=/tmp/mine CUDA_MPS_CLIENT_PRIORITY=1 " +
		"GPUSLOT_VRAM_MIB=99999 TF_FORCE_GPU_ALLOW_GROWTH=false CUDA_CACHE_PATH=/tmp")
	if err != nil {
		t.Fatal(err)
	}
	before := job.String()
	got := job.With(
		map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1", "CUDA_MPS_PIPE_DIRECTORY": "/run/p", "GPUSLOT_VRAM_MIB": "4096"},
		map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".12"})
	want := "'MINE=a b' GPUSLOT_VRAM_MIB=4096 TF_FORCE_GPU_ALLOW_GROWTH=false CUDA_CACHE_PATH=/tmp " +
		"CUDA_MPS_PIPE_DIRECTORY=/run/p CUDA_VISIBLE_DEVICES=GPU-1 XLA_PYTHON_CLIENT_MEM_FRACTION=.12"
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if job.String() != before {
		t.Error("With changed the job's environment")
	}
}

// What ParseEnvironment accepts, String prints so that it reads the same.
func FuzzEnvironment(f *testing.F) {
	for _, s := range []string{"A=1 B='a b'", "X=it''''s", "'A=''' B=\"", "A=\t", "'A=x\ny'", "A='\v'", "é=\xff", "A=1 A=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEnvironment(text)
		if err != nil {
			return
		}
		again, err := ParseEnvironment(e.String())
		if err != nil {
			t.Fatalf("%q is printed as %q, which is not accepted: %v", text, e.String(), err)
		}
		if diff := cmp.Diff(variables(e), variables(again)); diff != "" {
			t.Fatalf("%q is printed as %q (-first +again):\n%s", text, e.String(), diff)
		}
		if diff := cmp.Diff(e.Names(), again.Names()); diff != "" {
			t.Fatalf("%q: order (-first +again):\n%s", text, diff)
		}
		for name := range variables(e.With(nil, nil)) {
			if Reserved(name) {
				t.Fatalf("%q: %s is handed on", text, name)
			}
		}
	})
}
