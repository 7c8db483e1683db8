package config

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	uuidA = "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"
	uuidB = "GPU-8c24d7b2-19e5-47f0-8a6d-53b0c7e91002"
)

func v100(u gpu.UUID) gpu.GPU { return gpu.GPU{UUID: u, Name: "Tesla V100S-PCIE-32GB"} }

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse("gpuslot.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaultSettings(t *testing.T) {
	want := Settings{
		Mode: "mps", Shares: 0, ReservedVRAM: 64, LargestRequest: 0, Whole: 0, WholeFrom: "defaults",
		Threads: Threads{Policy: "uncapped"}, ComputeMode: "exclusive-process", Tenancy: Tenancy{Policy: "one-at-a-time"}, Tenant: "account", Repartition: "static", ModeFrom: "defaults", TenancyFrom: "defaults",
	}
	for name, c := range map[string]Config{"Default": Default(), "an empty file": parse(t, ""), "blank lines": parse(t, "\r\n\n# nothing\n")} {
		if d := cmp.Diff(want, c.For("wn-gpu1.example.org", v100(uuidA))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Each table sets one key more than the one before, so that each layer shows.
func TestForLaysTablesOverEachOther(t *testing.T) {
	c := parse(t, `
[gpu."GPU-5A1E0C11-7D02-4B6A-9C31-0E84A2D1F001"]
mode = "mps"
shares = 5

[host."wn-gpu1*"]
mode = "whole"
shares = 4
tenancy = "common:others"

[host."wn-gpu*"]
shares = 3
tenancy = "common:jobs"
compute_mode = "keep"

[host."*"]
compute_mode = "default"
threads = 33.3

[model."Tesla V100S-PCIE-32GB"]
threads = "equal"
whole = 2
reserved_vram = 1024

[model."Tesla V100-PCIE-32GB"]
reserved_vram = 4096

[sharing]
whole = 1
reserved_vram = 2048
largest_request = 8192
`)
	all := Settings{
		Mode: "mps", ModeFrom: `[gpu."` + uuidA + `"]`, Shares: 5, Tenancy: Tenancy{Policy: "common", User: "others"}, Tenant: "account", Repartition: "static", ComputeMode: "",
		TenancyFrom: `[host."wn-gpu1*"]`, Threads: Threads{Policy: "fixed", Percent: 33.3}, Whole: 2, WholeFrom: `[model."Tesla V100S-PCIE-32GB"]`, ReservedVRAM: 1024, LargestRequest: 8192,
	}
	otherGPU := all
	otherGPU.Mode, otherGPU.ModeFrom, otherGPU.Shares = "whole", `[host."wn-gpu1*"]`, 4
	otherHost := otherGPU
	otherHost.Mode, otherHost.ModeFrom, otherHost.Shares, otherHost.Tenancy = "mps", "defaults", 3, Tenancy{Policy: "common", User: "jobs"}
	otherHost.TenancyFrom = `[host."wn-gpu*"]`
	elsewhere := otherHost
	elsewhere.TenancyFrom = "defaults"
	elsewhere.Shares, elsewhere.Tenancy, elsewhere.ComputeMode = 0, Tenancy{Policy: "one-at-a-time"}, "default"
	otherModel := elsewhere
	otherModel.Whole, otherModel.WholeFrom, otherModel.ReservedVRAM = 1, "[sharing]", 2048
	for _, x := range []struct {
		name, host string
		gpu        gpu.GPU
		want       Settings
	}{
		{"every table", "wn-gpu17.example.org", v100(uuidA), all},
		{"no table of its own", "wn-gpu17.example.org", v100(uuidB), otherGPU},
		{"fewer hosts match", "WN-GPU27", v100(uuidB), otherHost},
		{"one host matches", "login.example.org", v100(uuidB), elsewhere},
		{"another model", "login.example.org", gpu.GPU{UUID: uuidB, Name: "NVIDIA A100-SXM4-40GB"}, otherModel},
	} {
		if d := cmp.Diff(x.want, c.For(x.host, x.gpu)); d != "" {
			t.Errorf("%s (-want +got):\n%s", x.name, d)
		}
	}
}

// "auto" and "keep" undo what a table below has set.
func TestForGoesBackToAuto(t *testing.T) {
	c := parse(t, `
[sharing]
shares = 4
largest_request = 8192
threads = 25
whole = 2
[host."wn-gpu1"]
shares = "auto"
largest_request = "auto"
threads = "uncapped"
whole = 0
`)
	s := c.For("wn-gpu1", v100(uuidA))
	if s.Shares != 0 || s.LargestRequest != 0 || s.Threads != (Threads{Policy: ThreadsUncapped}) || s.Whole != 0 || s.WholeFrom != `[host."wn-gpu1"]` {
		t.Errorf("settings are %+v", s)
	}
}

func TestHostGlobs(t *testing.T) {
	for _, x := range []struct {
		glob, host string
		want       bool
	}{
		{"wn-gpu1", "wn-gpu1", true},
		{"wn-gpu1", "WN-GPU1.Example.ORG", true}, // no dot: the short name
		{"wn-gpu?", "wn-gpu1.example.org", true},
		{"wn-gpu?", "wn-gpu10.example.org", false},
		{"wn-gpu*", "wn-gpu10.example.org", true},
		{"wn-gpu[1-3]", "wn-gpu2.example.org", true},
		{"wn-gpu[^1-3]", "wn-gpu2.example.org", false},
		{"*.example.org", "wn-gpu1.example.org", true},
		{"wn-gpu1.example.org", "wn-gpu1.example.org", true},
		{"wn-gpu1.example.org", "wn-gpu1", false},
		{"wn-gpu1.*", "wn-gpu1", false},
		{"*", "", true},
		{"wn-gpu1", "", false},
	} {
		if got := globMatches(x.glob, x.host); got != x.want {
			t.Errorf("%q matches %q: %v", x.glob, x.host, got)
		}
	}
}

// More literal characters win; among equals the later text.
func TestHostOrder(t *testing.T) {
	want := []string{"*", "[a-z]*", "w*", "?n-*", "[w]n-*", "wn-[0-9]*", "wn-g*", `wn\-g*`, "wn-gpu1", "wn-gpu2"}
	var tables []hostTable
	for _, g := range want {
		tables = append([]hostTable{{glob: g}}, tables...)
	}
	sortHosts(tables)
	var got []string
	for _, h := range tables {
		got = append(got, h.glob)
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %q; want %q", got, want)
	}
}

func TestConfigured(t *testing.T) {
	c := parse(t, `
[gpu."`+uuidB+`"]
mode = "whole"
[gpu."`+uuidA+`"]
host = "WN-GPU1"
`)
	for host, want := range map[string][]gpu.UUID{"wn-gpu1.example.org": {uuidA, uuidB}, "wn-gpu2.example.org": {uuidB}, "": {uuidB}} {
		if got := c.Configured(host); !slices.Equal(got, want) {
			t.Errorf("on %q: %v; want %v", host, got, want)
		}
	}
	// The table is still the GPU's own, wherever the card was moved.
	if s := parse(t, "[gpu.\""+uuidA+"\"]\nhost = \"wn-gpu1\"\nshares = 3").For("wn-gpu2", v100(uuidA)); s.Shares != 3 {
		t.Errorf("a moved GPU has %d shares; want 3", s.Shares)
	}
}
