package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// Bounds of a node, the same as those of an inventory.
const (
	maxCPUs       = gpu.MaxCPUs
	maxHostMemory = int64(gpu.MaxHostMemory)
)

// jobKeys are [request_vram] and [cpu_only].
func jobKeys() []Key {
	return []Key{
		{Table: "request_vram", Name: "minimum", Type: "a number of MiB", Default: "1536",
			Meaning: "The smallest budget, in MiB; smaller requests are raised to it. A CUDA context alone takes several " +
				"hundred MiB.",
			set: func(c *Config, _ *table, v any) string { return put(&c.RequestVRAM.Minimum)(readMiB(v, 1)) }},
		{Table: "request_vram", Name: "quantum", Type: "a number of MiB", Default: "512",
			Meaning: "The step of budgets, in MiB. Requests are rounded up to a multiple of it; pools and shares are " +
				"multiples of it. A large step keeps the number of different requests small, which saves time in " +
				"HTCondor's negotiator.",
			set: func(c *Config, _ *table, v any) string { return put(&c.RequestVRAM.Quantum)(readMiB(v, 1)) }},
		{Table: "request_vram", Name: "without_request", Type: `"whole", "share", "refuse", "hold" or "auto"`,
			Default: `"auto"`,
			Meaning: "What a GPU job without `request_vram` gets on shared GPUs. `whole`: nothing; it goes to whole GPUs of " +
				"this node. `refuse`: nothing; it waits for another node. `share`: one share. `hold`: a hold with the " +
				"line to add. `auto` is `whole` where the node has whole GPUs, else `refuse`.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.RequestVRAM.WithoutRequest)(readWithoutRequest(v))
			}},
		{Table: "cpu_only", Name: "cpus", Type: `a number, or a percentage such as "10%"`, Default: `"10%"`,
			Meaning: "Logical CPUs; a percentage is rounded down.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.CPUOnly.CPUs)(readAmount(v, maxCPUs, "a number of CPUs"))
			}},
		{Table: "cpu_only", Name: "memory", Type: `a number of MiB, or a percentage such as "10%"`, Default: `"10%"`,
			Meaning: "Main memory, in MiB; a percentage is rounded down.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.CPUOnly.Memory)(readAmount(v, maxHostMemory, "a number of MiB"))
			}},
	}
}

func readWithoutRequest(v any) (WithoutRequest, string) {
	w, p := word(v, WithoutRequestWhole, WithoutRequestShare, WithoutRequestRefuse, WithoutRequestHold, auto)
	if w == auto {
		w = WithoutRequestAuto
	}
	return w, p
}

// readAmount reads a whole number, or a percentage below 100 in quotes.
func readAmount(v any, most int64, what string) (Amount, string) {
	s, _ := v.(string)
	digits, percent := strings.CutSuffix(s, "%")
	if !percent {
		n, p := wholeNumber(v, 0, most, what)
		if p != "" {
			p += fmt.Sprintf(`; or a percentage, such as "10%%"`)
		}
		return Amount{N: n}, p
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || strings.Trim(digits, "0123456789.") != "" {
		return Amount{}, `write a percentage from "0%" to below "100%"`
	}
	if n >= 100 {
		return Amount{}, `write a percentage below "100%"; the GPUs need the rest`
	}
	return Amount{Percent: n}, ""
}
