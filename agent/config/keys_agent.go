package config

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
	"time"
)

// agentKeys are [health], [htcondor], [metrics] and [paths]: the agent's own.
func agentKeys() []Key {
	return []Key{
		{Table: "health", Name: "interval", Type: "a time with its unit", Default: `"15s"`,
			Meaning: "The time between two health checks of a control daemon. Each writes some lines into its log. A " +
				"GPU closes if its last health check is older than four times this, and than a minute.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Health.Interval)(duration(v, time.Second, 10*time.Minute))
			}},
		{Table: "health", Name: "open", Type: `"after-proof" or "after-verify"`, Default: `"after-proof"`,
			Meaning: "When a shared GPU takes jobs. `after-proof`: when its control daemon has the right limits. `after-" +
				"verify`: when a small CUDA client has also connected and met the limits (`gpuslot verify`), after each " +
				"boot, fault and change of the driver.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Health.Open)(word(v, OpenAfterProof, OpenAfterVerify))
			}},
		{Table: "health", Name: "unattached", Type: `"report", "hold" or "kill"`, Default: `"report"`,
			Meaning: "What happens to a process that computes on a shared GPU and is no client of its control daemon, so that" +
				" no limit applies. `report`: it is counted and reported. `hold`: HTCondor also holds its job. `kill`: " +
				"it is also killed.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Health.Unattached)(word(v, EnforceReport, EnforceHold, EnforceKill))
			}},
		{Table: "health", Name: "attach_within", Type: "a time with its unit", Default: `"30s"`,
			Meaning: "How long after its first use of the GPU a process may run without the control daemon.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Health.AttachWithin)(duration(v, time.Second, time.Hour))
			}},
		{Table: "htcondor", Name: "manage", Type: "true or false", Default: "true",
			Meaning: "Whether the agent writes the execution point's configuration. With `false` the site writes it with " +
				"`gpuslot condor-config`.",
			set: func(c *Config, _ *table, v any) string { return put(&c.HTCondor.Manage)(readBool(v)) }},
		{Table: "htcondor", Name: "supervise", Type: "true or false", Default: "true",
			Meaning: "Whether jobs on shared GPUs run below `gpuslot-condor supervise`, as HTCondor's job wrapper. Their MPS " +
				"clients then leave before a signal ends them; otherwise their neighbours may end too. A job that ends " +
				"over its budget stays until HTCondor holds it. On a node with MIG devices all jobs start through it, so" +
				" that they cannot open the device nodes of others. `mode = \"time-slice\"` needs it.",
			set: func(c *Config, _ *table, v any) string { return put(&c.HTCondor.Supervise)(readBool(v)) }},
		{Table: "htcondor", Name: "job_wrapper", Type: "an absolute path", Default: `""`,
			Meaning: "The site's own job wrapper (the former value of `USER_JOB_WRAPPER`), which `supervise` then starts. " +
				"Empty for none.",
			set: func(c *Config, _ *table, v any) string { return put(&c.HTCondor.JobWrapper)(readPath(v, true)) }},
		{Table: "htcondor", Name: "changes", Type: `"never", "when-idle" or "drain"`, Default: `"never"`,
			Meaning: "What happens to a changed plan for which the startd must restart. `never`: it is reported, and an " +
				"operator restarts the startd. `when-idle`: the startd restarts when no job runs on it. `drain`: it " +
				"takes no new jobs, and restarts when the running jobs have ended. No job is ended. A change that needs " +
				"only `condor_reconfig` is made at once, unless this is `never`.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.HTCondor.Changes)(word(v, ChangesNever, ChangesWhenIdle, ChangesDrain))
			}},
		{Table: "htcondor", Name: "layout", Type: `"one-startd" or "startd-per-gpu"`, Default: `"one-startd"`,
			Meaning: "Whether one startd has all slots, or each GPU has its own startd. With its own, one GPU's slots can " +
				"change while jobs run on the others. HTCondor's startd then keeps the jobs without GPUs and those on " +
				"whole GPUs. `startd-per-gpu` is experimental: no site has run it.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.HTCondor.Layout)(word(v, LayoutOneStartd, LayoutStartdPerGPU))
			}},
		{Table: "htcondor", Name: "execute", Type: "an absolute path", Default: `"/var/lib/gpuslot/execute"`,
			Meaning: "Where jobs have their directories if their GPU has its own startd: one directory below it for each such" +
				" startd (its EXECUTE). gpuslotd makes them where its unit may write.",
			set: func(c *Config, _ *table, v any) string { return put(&c.HTCondor.Execute)(readPath(v, false)) }},
		{Table: "metrics", Name: "listen", Type: "host:port", Default: `"127.0.0.1:9847"`,
			Meaning: "Where Prometheus finds `/metrics`; empty for no listener.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Metrics.Listen)(readListen(v)) }},
		{Table: "metrics", Name: "web_config", Type: "an absolute path", Default: `""`,
			Meaning: "A web configuration file of Prometheus' exporter-toolkit, for TLS and basic authentication; " +
				"empty for plain HTTP.",
			set: func(c *Config, _ *table, v any) string { return put(&c.Metrics.WebConfig)(readPath(v, true)) }},
		{Table: "metrics", Name: "job_labels", Type: `"none", "job" or "job-and-user"`, Default: `"job"`,
			Meaning: "What `gpuslot_slot_info`, the only metric that names jobs, contains. `none`: nothing. `job`: the job's " +
				"id and virtual organisation. `job-and-user`: its user and accounting group as well. Jobs on the node " +
				"can read an open port.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Metrics.JobLabels)(word(v, JobLabelsNone, JobLabelsJob, JobLabelsJobAndUser))
			}},
		{Table: "paths", Name: "run", Type: "an absolute path", Default: `"/run/gpuslot"`,
			Meaning: "Pipe directories, plan and generated files; removed by a reboot. At most 42 bytes, because a control " +
				"daemon accepts a pipe directory of at most 87.",
			set: func(c *Config, _ *table, v any) string { return put(&c.Paths.Run)(readRun(v)) }},
		{Table: "paths", Name: "state", Type: "an absolute path", Default: `"/var/lib/gpuslot"`,
			Meaning: "Files that must survive a reboot: the changes that gpuslot has to undo.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Paths.State)(readPath(v, false)) }},
		{Table: "paths", Name: "control_daemon", Type: "a name or an absolute path", Default: `"nvidia-cuda-mps-control"`,
			Meaning: "NVIDIA's program. A name is looked up in PATH.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Paths.ControlDaemon)(readProgram(v)) }},
		{Table: "paths", Name: "libexec", Type: "an absolute path", Default: `"/usr/libexec/gpuslot"`,
			Meaning: "The directory of gpuslot-condor, with the names by which HTCondor starts it.",
			set:     func(c *Config, _ *table, v any) string { return put(&c.Paths.Libexec)(readPath(v, false)) }},
	}
}

func readBool(v any) (bool, string) {
	b, ok := v.(bool)
	if !ok {
		return false, "write true or false, without quotes"
	}
	return b, ""
}

// readListen reads host:port; port 0 would be one that Prometheus cannot know.
func readListen(v any) (string, string) {
	s, ok := v.(string)
	if ok && s == "" {
		return "", ""
	}
	host, port, err := net.SplitHostPort(s)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n == 0 || strings.IndexFunc(host, notInAddress) >= 0 {
		return "", `write an address and a port from 1 to 65535, such as "127.0.0.1:9847", or "" for no listener`
	}
	return s, ""
}

// maxPipeDirectory is the longest pipe directory of a control daemon, in
// bytes; a longer one makes it exit without a message (measured on 535, 550
// and 555).
const maxPipeDirectory = 87

// pipeDirectoryTail is what stands behind paths.run in a pipe directory.
const pipeDirectoryTail = len("/mps/GPU-00000000-0000-0000-0000-000000000000")

func readRun(v any) (string, string) {
	s, p := readPath(v, false)
	if most := maxPipeDirectory - pipeDirectoryTail; p == "" && len(s) > most {
		return "", fmt.Sprintf("the path has %d bytes; a control daemon's pipe directory below it leaves room for at most %d",
			len(s), most)
	}
	return s, p
}

// readPath reads an absolute, clean path of characters that mean nothing in
// HTCondor's configuration, in unit files and in shells.
func readPath(v any, mayBeEmpty bool) (string, string) {
	s, ok := v.(string)
	if ok && s == "" && mayBeEmpty {
		return "", ""
	}
	switch {
	case !ok, !strings.HasPrefix(s, "/"):
		return "", "write an absolute path"
	case strings.IndexFunc(s, notInPath) >= 0:
		return "", "write a path of letters, digits and / . _ - + @ only"
	case s == "/":
		return "", "write a path below the root directory"
	case path.Clean(s) != s:
		return "", fmt.Sprintf("write the path in its shortest form: %q", path.Clean(s))
	}
	return s, ""
}

func readProgram(v any) (string, string) {
	s, ok := v.(string)
	if !ok || s == "" || !strings.HasPrefix(s, "/") && strings.ContainsRune(s, '/') {
		return "", "write a program's name or its absolute path"
	}
	if strings.IndexFunc(s, notInPath) >= 0 {
		return "", "write a name of letters, digits and / . _ - + @ only"
	}
	return s, ""
}

func notInPath(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("/._-+@", r)
}

// notInAddress also lets the colons and the zone of IPv6 pass.
func notInAddress(r rune) bool {
	return r == '/' || notInPath(r) && r != ':' && r != '%'
}
