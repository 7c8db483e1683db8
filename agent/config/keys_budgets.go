package config

import (
	"net/netip"
	"net/url"
	"time"
)

// budgetKeys are [budgets].
func budgetKeys() []Key {
	return []Key{
		{Table: "budgets", Name: "enforce", Type: `"hold" or "report"`, Default: `"hold"`,
			Meaning: "What happens to a job over its budget. `hold`: its MPS clients are ended, and HTCondor holds it with " +
				"the numbers and the request it needs. `report`: it is only counted. If the use cannot be measured, no " +
				"job is held.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Budgets.Enforce)(word(v, EnforceHold, EnforceReport))
			}},
		{Table: "budgets", Name: "grace", Type: "a time with its unit", Default: `"10s"`,
			Meaning: "How long a job may be over its budget by more than 5 % and 256 MiB. The time within that is subtracted.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Budgets.Grace)(duration(v, time.Second, time.Hour))
			}},
	}
}

// usageKeys are [usage].
func usageKeys() []Key {
	return []Key{
		{Table: "usage", Name: "interval", Type: "a time with its unit", Default: `"1s"`,
			Meaning: "The time between two samples of what processes use. A job over its budget is found at the next sample.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Usage.Interval)(duration(v, 100*time.Millisecond, time.Minute))
			}},
		{Table: "usage", Name: "dcgm", Type: "an http address on this machine", Default: `""`,
			Meaning: "The site's own dcgm-exporter, such as `http://127.0.0.1:9400/metrics`; empty for none. GPUs before " +
				"Hopper do not report through NVML how many multiprocessors are busy. With `DCGM_FI_PROF_SM_ACTIVE` in " +
				"that exporter's list, collected as often as `interval`, slots there also get their SM time. The name " +
				"`localhost` stands for 127.0.0.1. Read when gpuslotd starts.",
			set: func(c *Config, _ *table, v any) string { return put(&c.Usage.DCGM)(readLoopback(v)) }},

		{Table: "usage", Name: "dcgm_job_mapping", Type: "an absolute path", Default: `""`,
			Meaning: "The directory that the site's dcgm-exporter reads with `--hpc-job-mapping-dir`, such as " +
				"`/run/gpuslot/dcgm`. It has a file for each GPU, named by its index, with the ids of its jobs. " +
				"gpuslotd's unit may write only below `/run/gpuslot`. The exporter then gives each job the values of the" +
				" whole GPU: do not add them up. Empty for none.",
			set: func(c *Config, _ *table, v any) string { return put(&c.Usage.DCGMJobMapping)(readPath(v, true)) }}}
}

// readLoopback reads an address of this machine: only this machine may report what its
// GPUs do.
func readLoopback(v any) (string, string) {
	s, ok := v.(string)
	if ok && s == "" {
		return "", ""
	}
	u, err := url.Parse(s)
	if !ok || err != nil || u.Scheme != "http" || u.User != nil || !isLoopback(u.Hostname()) {
		return "", `write an address of this machine, such as "http://127.0.0.1:9400/metrics", or "" for none`
	}
	return s, ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
