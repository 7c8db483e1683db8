package config

import "time"

// elasticKeys are [elastic] and [placement].
func elasticKeys() []Key {
	return []Key{
		{Table: "elastic", Name: "min_whole", Type: "0 to 256", Default: "0",
			Meaning: "How many elastic GPUs are always whole, from the last PCI address down.",
			set: func(c *Config, _ *table, v any) string {
				n, p := wholeNumber(v, 0, maxWhole, "a number of GPUs")
				return put(&c.Elastic.MinWhole)(int(n), p)
			}},
		{Table: "elastic", Name: "max_whole", Type: `1 to 256, or "all"`, Default: `"all"`,
			Meaning: "The largest number of elastic GPUs that are whole. A job cannot have more of them.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Elastic.MaxWhole)(readMaxWhole(v)) }},
		{Table: "elastic", Name: "patience", Type: "a time with its unit", Default: `"1m"`,
			Meaning: "How long a job must have waited before elastic GPUs close to the other kind of jobs for it.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Elastic.Patience)(duration(v, 0, 24*time.Hour)) }},
		{Table: "elastic", Name: "stay", Type: "a time with its unit", Default: `"1h"`,
			Meaning: "How long elastic GPUs stay open to one kind of jobs, shared or whole, while the other kind waits. " +
				"Running jobs then run to their end.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Elastic.Stay)(duration(v, time.Second, 30*24*time.Hour))
			}},
		{Table: "elastic", Name: "offer", Type: "a time with its unit", Default: `"5m"`,
			Meaning: "How long elastic GPUs that opened for whole jobs wait for a job before they go back. It should be " +
				"longer than two cycles of the negotiator. If no job took an offer, the next comes later, by twice " +
				"`stay` up to sixteen times.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Elastic.Offer)(duration(v, time.Second, 24*time.Hour))
			}},
		{Table: "placement", Name: "large_after", Type: `a time with its unit, or "never"`, Default: `"never"`,
			Meaning: "How long a job with a large request_vram waits before a shared GPU closes to smaller requests, so that " +
				"its VRAM becomes free. A large request is at least half of the largest one of the node's shared GPUs. " +
				"It needs access points that count what waits (`gpuslot condor-config --for access-point`).",
			set: func(c *Config, _ *table, v any) string { return put(&c.Placement.LargeAfter)(readLargeAfter(v)) }},
		{Table: "placement", Name: "slot_weight", Type: `"site", "cpus" or "cpus-or-vram"`, Default: `"site"`,
			Meaning: "What a slot counts in HTCondor's accounting and quotas. `site`: what the site's SLOT_WEIGHT says. " +
				"`cpus`: its CPUs. `cpus-or-vram`: its CPUs, or its part of the GPU's VRAM in CPUs of that GPU's slot, " +
				"if that is more.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Placement.SlotWeight)(word(v, WeightSite, WeightCPUs, WeightCPUsOrVRAM))
			}},
	}
}

// Elastic are the rules of the GPUs that serve shared or whole jobs by turns.
type Elastic struct {
	// MinWhole and MaxWhole bound how many are whole; MaxWhole 0 is all.
	MinWhole, MaxWhole int
	// Patience is how long a job waits before GPUs are closed for it, Stay how long
	// a side keeps them while the other waits, Offer how long open ones wait.
	Patience, Stay, Offer time.Duration
}

// Placement is what helps jobs onto the right GPU.
type Placement struct {
	// LargeAfter is how long a large job waits before a GPU is closed to smaller ones;
	// 0 is without end.
	LargeAfter time.Duration
	SlotWeight SlotWeight
}

// SlotWeight names what a slot weighs.
type SlotWeight string

// The weights: what the site says; CPUs; the larger of CPUs and the part of VRAM.
const (
	WeightSite       SlotWeight = "site"
	WeightCPUs       SlotWeight = "cpus"
	WeightCPUsOrVRAM SlotWeight = "cpus-or-vram"
)

func readMaxWhole(v any) (int, string) {
	if v == "all" {
		return 0, ""
	}
	n, p := wholeNumber(v, 1, maxWhole, "a number of GPUs")
	if p != "" {
		p += `, or "all"`
	}
	return int(n), p
}

func readLargeAfter(v any) (time.Duration, string) {
	if v == "never" {
		return 0, ""
	}
	d, p := duration(v, time.Second, 7*24*time.Hour)
	if p != "" {
		p += `, or "never"`
	}
	return d, p
}

// checkMode refuses elastic GPUs where each GPU has a startd of its own, because the slot of
// their whole jobs is one for all, and time slices where jobs do not ask for their limits.
func (d *draft) checkMode(p placed) {
	key := below(p.key, "mode")
	switch m := p.table.mode; {
	case m == nil:
	case *m == ModeElastic && d.HTCondor.Layout == LayoutStartdPerGPU:
		d.bad(key, d.value(key), "elastic GPUs need one startd for all of them; write htcondor.layout = %q", LayoutOneStartd)
	case *m == ModeTimeSlice && !d.HTCondor.Supervise:
		d.bad(key, d.value(key), "jobs get their VRAM limits from supervise, before their programs run; write "+
			"htcondor.supervise = true")
	}
}

// checkElastic holds the bounds of [elastic] against each other.
func (d *draft) checkElastic() {
	e := d.Elastic
	if e.MaxWhole > 0 && e.MinWhole > e.MaxWhole {
		key := d.written("elastic", "min_whole", "max_whole")
		d.bad(key, d.value(key), "min_whole (%d) is above max_whole (%d); "+
			"write max_whole = %d or more, or a smaller min_whole", e.MinWhole, e.MaxWhole, e.MinWhole)
	}
}
