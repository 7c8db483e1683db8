package config

import (
	"fmt"
	"math"
	"path"
	"strings"
	"unicode"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Bounds of the sharing keys.
const (
	// maxShares is the largest number of MPS clients of one device that any
	// driver has: 48 up to CUDA 13.0, 60 from 13.1 (NVIDIA MPS documentation).
	// The plan knows the driver and may have to say less.
	maxShares = 60
	maxWhole  = 256
	// maxLayouts is more alternatives than anybody thinks through.
	maxLayouts = 16
	// A control daemon keeps a thread percentage with one decimal: it answers
	// 12.3 to 12.345, and would read 0.04 as nothing (measured on 535 to 555).
	minThreads = 0.1
)

// auto leaves a value to the plan.
const auto = "auto"

func sharingKeys() []Key {
	return []Key{
		{Table: "sharing", Name: "mode", Default: `"mps"`,
			Type: `"mps", "time-slice", "whole", "elastic", "mig", "observe" or "choose"`,
			Meaning: "How jobs get the GPU. `mps`: several jobs share it through its own MPS control daemon. " +
				"`time-slice`: several jobs share it in turns, without MPS, and the driver limits the VRAM of each job's " +
				"cgroup. The fault of one job ends no other (driver 615 or newer, and cgroup v2 with the controller dmem or " +
				"misc; not on MIG devices). `whole`: one job" +
				" at a time has it. `elastic`: either, in turns, as jobs wait (`[elastic]`). `mig`: it is divided into " +
				"MIG devices, each for one job at a time. `observe`: gpuslot changes nothing, neither on the GPUs nor in" +
				" HTCondor, and records what the jobs use (all GPUs of a node or none; operations.md, Observe first). " +
				"`choose`: `mig` where `isolation` is set and the GPU and `mig_layout` allow it; `whole` where MPS " +
				"cannot serve or isolate; else `mps`. `gpuslot plan` says why.",
			set: func(_ *Config, t *table, v any) string { return point(&t.mode)(readMode(v)) }},
		{Table: "sharing", Name: "shares", Type: `1 to 60, or "auto"`, Default: `"auto"`,
			Meaning: "The largest number of jobs on one shared GPU. `auto` is the least of 8, one per 4 GiB of the VRAM pool," +
				" and the number of MPS clients that the driver serves.",
			set: func(_ *Config, t *table, v any) string { return point(&t.shares)(readShares(v)) }},
		{Table: "sharing", Name: "whole", Type: "0 to 256", Default: "0", notInGPU: true,
			Meaning: "How many of this table's GPUs are whole, from the last PCI address down, so that they are the same " +
				"after a reboot. Jobs with several GPUs run only on whole or elastic ones. A GPU whose own table sets " +
				"`mode` is not counted.",
			set: func(_ *Config, t *table, v any) string {
				n, p := wholeNumber(v, 0, maxWhole, "a number of GPUs")
				return point(&t.whole)(int(n), p)
			}},
		{Table: "sharing", Name: "reserved_vram", Type: "a number of MiB", Default: "64",
			Meaning: "VRAM of a shared GPU that no job gets, in MiB. It is a reserve for memory that the driver lists for no " +
				"process. At least 26 are kept. It is separate from what the driver reserves and the MPS server " +
				"needs, which `gpuslot plan` prints. More than 64 is for a desktop, too: users' programs outside of " +
				"jobs can then open the GPU.",
			set: func(_ *Config, t *table, v any) string { return point(&t.reservedVRAM)(readMiB(v, 0)) }},
		{Table: "sharing", Name: "largest_request", Type: `a number of MiB, or "auto"`, Default: `"auto"`,
			Meaning: "The largest budget of one job on a shared GPU, in MiB. " +
				"It is also the limit of the GPU's control daemon. `auto` is the whole pool.",
			set: func(_ *Config, t *table, v any) string { return point(&t.largestRequest)(readLargest(v)) }},
		{Table: "sharing", Name: "threads", Type: `"uncapped", "equal", "by-vram", "partitioned", or 0.1 to 100`,
			Default: `"uncapped"`,
			Meaning: "The active thread percentage of a job: no limit (`uncapped`); 100 divided by the shares (`equal`); in " +
				"proportion to its budget (`by-vram`); or one number for all, in percent. It is a limit, not a " +
				"reservation. With `partitioned` each share has its own multiprocessors instead, a static SM partition. " +
				"This needs driver R590 or newer, and a GPU of the Ampere generation or newer.",
			set: func(_ *Config, t *table, v any) string { return point(&t.threads)(readThreads(v)) }},
		{Table: "sharing", Name: "threads_max", Type: `0.1 to 100, or "policy"`, Default: `"policy"`,
			Meaning: "The largest active thread percentage that a job may request with `+RequestGPUThreads`, if it is above " +
				"what `threads` gives. With `policy` jobs may only ask for less. It is also the control daemon's own " +
				"limit.",
			set: func(_ *Config, t *table, v any) string { return point(&t.mostThreads)(readMostThreads(v)) }},
		{Table: "sharing", Name: "compute_mode", Type: `"exclusive-process", "default" or "keep"`,
			Default: `"exclusive-process"`,
			Meaning: "The compute mode of a shared GPU. It is restored when gpuslot stops sharing the GPU. With `exclusive-" +
				"process` the GPU accepts only the MPS server, so a job that drops its pipe directory gets no GPU. With " +
				"`default` such a job gets the GPU without a limit. With `keep` the mode is not changed. " +
				"With `mode = \"time-slice\"` it is always `default`.",
			set: func(_ *Config, t *table, v any) string { return point(&t.computeMode)(readComputeMode(v)) }},
		{Table: "sharing", Name: "tenancy", Type: `"one-at-a-time", "common:<user>" or "multi-user"`,
			Default: `"one-at-a-time"`,
			Meaning: "Whose jobs share a GPU at one time; MPS serves one account, and the others wait. `one-at-a-time` " +
				"accepts only the account that holds the GPU now. `common:<user>` means that all jobs run as that one " +
				"account, without isolation between them. `multi-user` runs control daemons whose server runs as root " +
				"and serves all accounts at once. They then share its faults and its log (driver 555 or newer). With " +
				"`mode = \"time-slice\"` accounts share no server, and the default is `multi-user`.",
			set: func(_ *Config, t *table, v any) string { return point(&t.tenancy)(readTenancy(v)) }},
		{Table: "sharing", Name: "tenant", Type: `"account", "accounting-group" or "vo"`, Default: `"account"`,
			Meaning: "What the jobs on one GPU have in common at one time: the account; `AcctGroup`, the accounting group; or" +
				" `x509UserProxyVOName`, the virtual organisation. A job that has none belongs to its owner. The last " +
				"two need `common:<user>` or `multi-user`, where nothing else separates jobs.",
			set: func(_ *Config, t *table, v any) string {
				return point(&t.tenant)(word(v, TenantAccount, TenantGroup, TenantVO))
			}},
		{Table: "sharing", Name: "mig_layout", Type: `a layout, or a list of them by preference`, Default: `"keep"`,
			Meaning: "The MIG devices of a GPU with `mode = \"mig\"`: profiles as nvidia-smi prints them, with a count after " +
				"`*` and a start after `@`, such as `\"3g.20gb, 2g.10gb, 1g.5gb*2\"`. In a list, the first layout is used " +
				"that the GPU's chip supports and that has room beside instances that gpuslot did not make. Slots are " +
				"made for the places of the whole list. To change the layout without a restart of the startd, reorder " +
				"the list and reload. gpuslot turns MIG mode on and makes the instances before HTCondor starts. It never" +
				" changes instances in use: devices without a place in a new layout take no new jobs. The layout is made" +
				" when the last job on them has ended. `keep` offers the devices that exist and changes nothing.",
			set: func(_ *Config, t *table, v any) string { return point(&t.migLayouts)(readLayouts(v)) }},
		{Table: "sharing", Name: "mig_mps", Type: "true or false", Default: "false",
			Meaning: "Whether several jobs share each MIG device. It then has its own control daemon, shares and VRAM pool, " +
				"as a whole GPU has. A device has at most as many shares as NVIDIA serves MPS clients there, in " +
				"proportion to its compute slices: 5 on one slice of seven, 19 on three.",
			set: func(_ *Config, t *table, v any) string { return point(&t.migMPS)(readBool(v)) }},
		{Table: "sharing", Name: "repartition", Type: `"static", "suggest" or "auto"`, Default: `"static"`,
			Meaning: "Whether the layout of a GPU with `mode = \"mig\"` follows the work that waits in the pool, within the " +
				"places of `mig_layout`. `static`: it does not. `suggest`: `gpuslot status`, metrics and the history say" +
				" what `auto` would do. `auto`: it does, without a change to a device in use. The access points report " +
				"what waits (`gpuslot condor-config --for access-point`). Not with `mig_mps`.",
			set: func(_ *Config, t *table, v any) string {
				return point(&t.repartition)(word(v, mig.Static, mig.Suggest, mig.Auto))
			}},
		{Table: "sharing", Name: "isolation", Type: "true or false", Default: "false",
			Meaning: "A requirement for `mode = \"choose\"`: the hardware must separate the memory, multiprocessors and " +
				"faults of jobs, which MPS does not. Set it if accounts do not trust each other. Programs without CUDA cannot " +
				"use MPS at all.",
			set: func(_ *Config, t *table, v any) string { return point(&t.isolation)(readBool(v)) }},
		{Table: "gpu", Name: "host", Type: "a host name or glob", Default: `"*"`,
			Meaning: "Where the GPU is expected, so that all nodes can have one file. On other hosts its absence is not " +
				"reported.",
			set: func(_ *Config, t *table, v any) string { return point(&t.host)(readHost(v)) }},
	}
}

// readHost reads a glob of host names.
func readHost(v any) (string, string) {
	s, ok := v.(string)
	if !ok {
		return "", `write a host name in quotes, such as "wn-gpu*"`
	}
	return strings.ToLower(s), badGlob(s)
}

// badGlob says why a glob cannot match host names.
func badGlob(glob string) string {
	switch _, err := path.Match(glob, ""); {
	case strings.TrimSpace(glob) == "":
		return `the name is empty; write a host name, with * and ? where they differ, such as "wn-gpu*"`
	case err != nil:
		return `the name is no glob; write a host name, with * and ? where they differ, such as "wn-gpu*"`
	case strings.Contains(glob, "[!"):
		return "write [^…] for characters that must not stand there; [!…] is a shell's spelling"
	}
	return ""
}

func readMode(v any) (Mode, string) {
	return word(v, ModeMPS, ModeTimeSlice, ModeWhole, ModeElastic, ModeMIG, ModeObserve, ModeChoose)
}

// keepLayout leaves the MIG devices as they are.
const keepLayout = "keep"

// readLayouts reads one layout or a list of alternatives. Whether a GPU's chip
// can have them is the plan's business.
func readLayouts(v any) ([]string, string) {
	const right = `write a layout such as "3g.20gb, 1g.5gb*4", a list of them, or "keep"`
	var texts []string
	switch x := v.(type) {
	case string:
		if x == keepLayout {
			return nil, ""
		}
		texts = []string{x}
	case []any:
		for _, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, right
			}
			texts = append(texts, s)
		}
	}
	if len(texts) == 0 || len(texts) > maxLayouts {
		return nil, right
	}
	for _, s := range texts {
		if err := mig.CheckWant(s); err != nil {
			return nil, fmt.Sprintf("%v; %s", err, right)
		}
	}
	return texts, ""
}

func readShares(v any) (int, string) {
	if v == auto {
		return 0, ""
	}
	n, p := wholeNumber(v, 1, maxShares, "a number of jobs")
	return int(n), or(p, auto)
}

func readLargest(v any) (gpu.MiB, string) {
	if v == auto {
		return 0, ""
	}
	n, p := readMiB(v, 1)
	return n, or(p, auto)
}

// or adds a word to a problem that speaks of a number only.
func or(problem, word string) string {
	if problem == "" {
		return ""
	}
	return fmt.Sprintf("%s, or %q", problem, word)
}

// readMiB reads an amount of GPU memory.
func readMiB(v any, least int64) (gpu.MiB, string) {
	n, p := wholeNumber(v, least, int64(gpu.MaxMemory), "a number of MiB")
	return gpu.MiB(n), p
}

func readThreads(v any) (Threads, string) {
	const right = `write "uncapped", "equal", "by-vram", "partitioned" or a percentage from 0.1 to 100`
	if n, ok := number(v); ok {
		p := badPercentage(n, right)
		return Threads{Policy: ThreadsFixed, Percent: n}, p
	}
	policy, p := word(v, ThreadsUncapped, ThreadsEqual, ThreadsByVRAM, ThreadsPartitioned)
	if p != "" {
		p = right + unquote(v)
	}
	return Threads{Policy: policy}, p
}

func readMostThreads(v any) (float64, string) {
	const policy, right = "policy", `write "policy" or a percentage from 0.1 to 100`
	n, ok := number(v)
	switch {
	case v == policy:
		return 0, ""
	case !ok:
		return 0, right + unquote(v)
	}
	return n, badPercentage(n, right)
}

// badPercentage says why a control daemon would not keep a number.
func badPercentage(n float64, right string) string {
	if n < minThreads || n > 100 {
		return right
	}
	if tenths := math.Round(n * 10); math.Abs(n*10-tenths) > 1e-9 {
		return fmt.Sprintf("the control daemon keeps one decimal; write %.1f", tenths/10)
	}
	return ""
}

func readComputeMode(v any) (gpu.ComputeMode, string) {
	const keep gpu.ComputeMode = "keep"
	m, p := word(v, gpu.ComputeModeExclusiveProcess, gpu.ComputeModeDefault, keep)
	if m == keep {
		m = ""
	}
	return m, p
}

func readTenancy(v any) (Tenancy, string) {
	const right = `write "one-at-a-time", "common:<user>" or "multi-user"`
	s, _ := v.(string)
	user, common := strings.CutPrefix(s, string(TenancyCommon)+":")
	if !common {
		policy, p := word(v, TenancyOneAtATime, TenancyMultiUser)
		if p != "" {
			p = right
		}
		return Tenancy{Policy: policy}, p
	}
	if problem := badAccount(user); problem != "" {
		return Tenancy{}, problem
	}
	return Tenancy{Policy: TenancyCommon, User: user}, ""
}

// badAccount says why a name cannot be the account of jobs. It does not look
// the account up: a file is also checked where the account does not exist.
func badAccount(user string) string {
	const longest = 256
	switch {
	case user == "":
		return `name the account after the colon, such as "common:gpujobs"`
	case user == "root":
		return `HTCondor does not run jobs as root; name the account that the jobs run as, such as "common:gpujobs"`
	case strings.Trim(user, "0123456789") == "":
		return `name the account instead of its number, such as "common:gpujobs"`
	case len(user) > longest, user[0] == '-', strings.IndexFunc(user, notInAccount) >= 0:
		return `this is no account's name; write one such as "common:gpujobs"`
	}
	return ""
}

func notInAccount(r rune) bool {
	return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`:/"'$`+"`", r)
}
