package config

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestModelGlobs: a [model] table matches by glob, in any case, the more specific later.
func TestModelGlobs(t *testing.T) {
	c := parse(t, `
[model."*V100*"]
shares = 3
whole = 1
[model."tesla v100S-*"]
shares = 4
[model."NVIDIA A100*"]
shares = 7
`)
	if s := c.For("", v100(uuidA)); s.Shares != 4 || s.Whole != 1 || s.WholeFrom != `[model."*V100*"]` {
		t.Errorf("settings are %+v", s)
	}
	if s := c.For("", gpu.GPU{Name: "NVIDIA H100"}); s.Shares != 0 {
		t.Errorf("settings of another product are %+v", s)
	}
}

// TestGPUBeginnings: a [gpu] table names a GPU by the beginning of its UUID; the whole one
// is stronger.
func TestGPUBeginnings(t *testing.T) {
	c := parse(t, `
[gpu."`+uuidA+`"]
shares = 5
[gpu."gpu-5A1E0C11"]
shares = 4
mode = "whole"
`)
	if s := c.For("", v100(uuidA)); s.Shares != 5 || s.ModeFrom != `[gpu."GPU-5a1e0c11"]` {
		t.Errorf("settings are %+v", s)
	}
	if s := c.For("", v100(uuidB)); s.Mode != ModeMPS {
		t.Errorf("settings of another GPU are %+v", s)
	}
	if got := c.Configured(""); !slices.Equal(got, []gpu.UUID{uuidA}) {
		t.Errorf("configured are %v", got)
	}
	for _, short := range []string{"GPU-5a1e0c1", "GPU-5a1e0c11_", "5a1e0c11", "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f0011"} {
		if _, err := Parse("gpuslot.toml", []byte("[gpu.\""+short+"\"]\nshares = 1\n")); err == nil {
			t.Errorf("%s is accepted", short)
		}
	}
}

func TestUnmatched(t *testing.T) {
	c := parse(t, `
[model."Tesla V100S*"]
[model."NVIDIA A100-SXM4-40G"]
[gpu."GPU-5a1e0c11"]
[gpu."GPU-ffffffff"]
[gpu."GPU-eeeeeeee"]
host = "wn-gpu2"
`)
	a100 := gpu.GPU{UUID: uuidB, Name: "NVIDIA A100-SXM4-40GB"}
	for name, tt := range map[string]struct {
		gpus []gpu.GPU
		want []string
	}{
		"all have a table":  {[]gpu.GPU{v100(uuidA)}, []string{`[gpu."GPU-ffffffff"]`}},
		"one has none":      {[]gpu.GPU{v100(uuidA), a100}, []string{`[gpu."GPU-ffffffff"]`, `[model."NVIDIA A100-SXM4-40G"]`}},
		"no GPU of a table": {[]gpu.GPU{a100}, []string{`[gpu."GPU-5a1e0c11"]`, `[gpu."GPU-ffffffff"]`, `[model."NVIDIA A100-SXM4-40G"]`, `[model."Tesla V100S*"]`}},
	} {
		if got := c.Unmatched("wn-gpu1", tt.gpus); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
