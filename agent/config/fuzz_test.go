package config

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpuslot/gpuslot/gpu"
)

// FuzzParse: nothing panics; what is refused says why in sorted single lines;
// what is accepted resolves on any GPU to settings within their bounds, twice
// the same.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	for _, s := range []string{"", everything, "\"\" = 1\n", "[host.'*']\nthreads = 1e-1\n", "a.b.c.d = {x = [1, {y = 2}]}\n", "[gpu.\"\\u0000\"]\n", "x = 1979-05-27T07:32:00Z\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("fuzz.toml", text)
		if err != nil {
			refused(t, err)
			return
		}
		if c.RequestVRAM.Quantum < 1 || c.RequestVRAM.Minimum < 1 || c.RequestVRAM.Minimum%c.RequestVRAM.Quantum != 0 {
			t.Errorf("request_vram is %+v", c.RequestVRAM)
		}
		if h := c.Health; h.Interval <= 0 || h.MaxAge() < ReplyDeadline+h.Interval {
			t.Errorf("health is %+v", h)
		}
		for _, a := range []Amount{c.CPUOnly.CPUs, c.CPUOnly.Memory} {
			if of := a.Of(1000); of < 0 || a.N == 0 && of > 1000 {
				t.Errorf("%+v of 1000 is %d", a, of)
			}
		}
		if len(c.Paths.Run)+pipeDirectoryTail > maxPipeDirectory {
			t.Errorf("a pipe directory below %s is too long", c.Paths.Run)
		}
		for _, w := range c.Warnings {
			if strings.ContainsAny(w, "\n\r") || !strings.HasPrefix(w, "fuzz.toml") {
				t.Errorf("warning %q", w)
			}
		}
		again, err := Parse("fuzz.toml", text)
		if err != nil || !cmp.Equal(c, again, cmp.AllowUnexported(Config{}, table{}, hostTable{})) {
			t.Errorf("a second reading gives %+v, %v", again, err)
		}
		for _, host := range []string{"", "wn-gpu1", "wn-gpu1.example.org", "WN-GPU17"} {
			if !slices.IsSorted(c.Configured(host)) {
				t.Errorf("Configured(%q) is not sorted", host)
			}
			for uuid := range c.gpus {
				bounded(t, c, c.For(host, v100(uuid)))
			}
			for model := range c.models {
				bounded(t, c, c.For(host, gpu.GPU{UUID: uuidB, Name: model}))
			}
			bounded(t, c, c.For(host, gpu.GPU{}))
		}
	})
}

// refused checks the form of errors.
func refused(t *testing.T, err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	if len(all) != len(strings.Split(err.Error(), "\n")) {
		t.Errorf("%d errors take more lines: %q", len(all), err)
	}
	last := 0
	for _, one := range all {
		var e *Error
		if !errors.As(one, &e) || e.File != "fuzz.toml" || e.Problem == "" || len(one.Error()) > 1000 {
			t.Errorf("error %q", one)
			continue
		}
		if e.Line == 0 && e.Key != "" || e.Line != 0 && e.Line < last {
			t.Errorf("line %d after line %d in %q", e.Line, last, err)
		}
		last = e.Line
	}
}

// bounded checks settings that any file may have led to.
func bounded(t *testing.T, c Config, s Settings) {
	const most = gpu.MaxMemory
	largest := s.LargestRequest
	percent := s.Threads.Percent
	for _, x := range []struct {
		what string
		ok   bool
	}{
		{"mode", s.Mode == ModeMPS || s.Mode == ModeWhole},
		{"shares", 0 <= s.Shares && s.Shares <= maxShares},
		{"whole", 0 <= s.Whole && s.Whole <= maxWhole},
		{"reserved_vram", 0 <= s.ReservedVRAM && s.ReservedVRAM <= most},
		{"largest_request", largest == 0 || c.RequestVRAM.Minimum <= largest && largest <= most},
		{"threads", s.Threads.Policy == ThreadsFixed && minThreads <= percent && percent <= 100 && math.Abs(percent*10-math.Round(percent*10)) < 1e-6 ||
			slices.Contains([]ThreadsPolicy{ThreadsUncapped, ThreadsEqual, ThreadsByVRAM, ThreadsPartitioned}, s.Threads.Policy) && percent == 0},
		{"compute_mode", slices.Contains([]gpu.ComputeMode{"", gpu.ComputeModeDefault, gpu.ComputeModeExclusiveProcess}, s.ComputeMode)},
		{"tenancy", (s.Tenancy.Policy == TenancyCommon) == (s.Tenancy.User != "") && s.Tenancy.Policy != ""},
		{"origin", s.ModeFrom != "" && s.WholeFrom != "" && !strings.Contains(s.ModeFrom+s.WholeFrom, "\n")},
	} {
		if !x.ok {
			t.Errorf("%s out of bounds in %+v", x.what, s)
		}
	}
}

// everything is a file with every key, as the reference documents it.
const everything = `
[sharing]
mode = "mps"
shares = 8
whole = 1
reserved_vram = 512
largest_request = 16384
threads = 12.5
compute_mode = "default"
tenancy = "common:gpujobs"
[model."Tesla V100S-PCIE-32GB"]
whole = 2
[host."wn-gpu*"]
threads = "by-vram"
[gpu."GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"]
host = "wn-gpu1"
mode = "whole"
[request_vram]
minimum = 1536
quantum = 512
without_request = "refuse"
[cpu_only]
cpus = "10%"
memory = 4096
[health]
interval = "15s"
[htcondor]
manage = false
[metrics]
listen = ""
[paths]
run = "/run/gpuslot"
`
