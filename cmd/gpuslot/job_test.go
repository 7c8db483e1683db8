package main

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
)

func TestParseJob(t *testing.T) {
	for s, want := range map[string]plan.Request{
		typicalJob:                       {CPUs: 1, Memory: 4000, VRAM: 4000},
		"vram=6000":                      {CPUs: 1, Memory: 4000, VRAM: 6000},
		"memory=8000,cpus=2,vram=1":      {CPUs: 2, Memory: 8000, VRAM: 1},
		"cpus=65536,memory=1,vram=99999": {CPUs: 65536, Memory: 1, VRAM: 99999},
	} {
		if got, err := parseJob(s); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for s, says := range map[string][]string{
		"":                   {`"" is none of cpus, memory, vram`},
		"cpus":               {`cpus is ""`},
		"cpus=0":             {`cpus is "0"; write a whole number`},
		"cpus=1.5":           {`cpus is "1.5"`},
		"vram=4G":            {`vram: "4G" is not a whole number of MiB`},
		"memory=0":           {"memory is 0 MiB"},
		"cpus=1,cpus=2":      {"cpus is there twice"},
		"gpus=1,memory=-1,,": {`"gpus" is none of`, `memory: "-1"`, `"" is none of`},
	} {
		_, err := parseJob(s)
		for _, part := range says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want …%s…", s, err, part)
			}
		}
	}
}

func FuzzParseJob(f *testing.F) {
	for _, s := range []string{typicalJob, "vram=6000", "cpus=0", "memory=,", "cpus=1,cpus=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseJob(s)
		if err == nil && (r.CPUs < 1 || r.Memory < 1 || r.VRAM < 1) {
			t.Fatalf("%q is taken as %+v", s, r)
		}
	})
}
