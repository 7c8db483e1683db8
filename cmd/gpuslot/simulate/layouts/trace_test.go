package layouts_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

func TestReadTrace(t *testing.T) {
	want := layouts.Trace{
		{Arrival: 0, Duration: 60 * time.Second, Profile: "1g.5gb"},
		{Arrival: 1500 * time.Millisecond, Duration: time.Hour, Memory: 6000, Multiprocessors: 20},
	}
	for _, text := range []string{
		"arrival,duration,profile,vram,sms\n0,60,1g.5gb,,\n# a comment\n1.5, 3600,,6000,20\n",
		"\ufeffarrival,duration,profile,vram,sms\r\n0,60,1g.5gb,,\r\n1.5,3600,,6000,20\r\n", // a spreadsheet's
		"\n{\"arrival\":0,\"duration\":60,\"profile\":\"1g.5gb\"}\n\n{\"arrival\":1.5,\"duration\":3600,\"vram\":6000,\"sms\":20}",
	} {
		got, err := layouts.ReadTrace(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReadTraceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                             "the trace is empty",
		"arrival,length\n":                             `column "length" in the header`,
		"arrival,arrival\n":                            `column "arrival" in the header`,
		"arrival,duration,profile\n0,,1g.5gb\n":        "trace line 2: duration 0s: it is above 0",
		"arrival,duration,profile\n0,x,1g.5gb\n":       `trace line 2: duration "x" is not a number`,
		"arrival,duration,profile\n0,1\n":              "wrong number of fields",
		"arrival,duration,profile\n0,NaN,1g\n":         `duration "NaN" is not a number`,
		"arrival,duration,profile\n-1,1,1g\n":          "arrival -1s",
		"arrival,duration\n0,1\n":                      "a job names either a profile, or the VRAM or SMs that it needs",
		"arrival,duration,profile,vram\n0,1,1g,100\n":  "a job names either a profile",
		"{\"arrival\":0,\"duration\":1,\"gpu\":1}":     `trace line 1: json: unknown field "gpu"`,
		"{\"arrival\":0,\"duration\":1,\"vram\":1}{}":  "more than one job in a line",
		"{\"arrival\":0,\"duration\":1e99,\"vram\":1}": "is no time in seconds",
	} {
		if _, err := layouts.ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzReadTrace: what is read is written and read again as the same.
func FuzzReadTrace(f *testing.F) {
	f.Add("arrival,duration,profile,vram,sms\n0,60,1g.5gb,,\n1.5,3600,,6000,20\n")
	f.Add("{\"arrival\":0,\"duration\":60,\"profile\":\"1g.5gb\"}\n")
	f.Add("profile,arrival,duration\n\"1g\n\",1e9,0.001\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := layouts.ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := got.WriteCSV(&b); err != nil {
			t.Fatal(err)
		}
		again, err := layouts.ReadTrace(&b)
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if len(got) != len(again) || len(got) > 0 && !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v\n%+v", got, again)
		}
	})
}

// FuzzParseSynthetic: what is accepted makes a trace of so many jobs, or says why not.
func FuzzParseSynthetic(f *testing.F) {
	f.Add("load=0.5,seed=1")
	f.Add("load=2,seed=18446744073709551615,jobs=3,minutes=0.1,fit=larger,most=7")
	chip, err := mig.Model("A100-40", 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := layouts.ParseSynthetic(text)
		if err != nil || s.Jobs > 1000 {
			return
		}
		if trace, err := s.Trace(chip, 1); err == nil && len(trace) != s.Jobs {
			t.Fatalf("%d jobs of %d", len(trace), s.Jobs)
		}
	})
}

func TestParseSynthetic(t *testing.T) {
	got, err := layouts.ParseSynthetic("load=0.65,seed=7,jobs=20,minutes=2,fit=larger,most=2")
	if err != nil {
		t.Fatal(err)
	}
	if want := (layouts.Synthetic{Load: 0.65, Seed: 7, Jobs: 20, Mean: 2 * time.Minute, Most: 2, Larger: true, Mix: "mixed", Arrivals: "flat"}); got != want {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"load=0", "load=NaN", "load=3", "jobs=0", "seed=-1", "minutes=x", "fit=any", "size=3"} {
		if _, err := layouts.ParseSynthetic(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
