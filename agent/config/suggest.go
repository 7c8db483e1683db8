package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// unknownTable says what to do about a name at the top level of the file.
func unknownTable(name string) string {
	for _, k := range Keys() {
		if k.Name == name {
			return fmt.Sprintf("the key stands outside any table; write it below [%s]", k.Table)
		}
	}
	var names []string
	for _, t := range Tables() {
		names = append(names, t.Name)
	}
	return "there is no such table" + suggest(name, names)
}

// unknownKey says what to do about a key that a table does not have.
func unknownKey(at toml.Key, name string, value any, keys map[string]Key) string {
	if _, ok := value.(map[string]any); ok && (at[0] == "host" || at[0] == "model") {
		return fmt.Sprintf("a name with dots needs quotes: [%s.%q]", at[0], fullName(at, name, value))
	}
	for _, k := range Keys() {
		switch {
		case k.Name != name:
		case k.notInGPU && at[0] == "gpu":
			return `the key counts GPUs and has no meaning for one; write mode = "whole"`
		case k.Table == "gpu":
			return `the key says where a GPU is expected; write it below [gpu."GPU-…"]`
		default:
			return fmt.Sprintf("the key does not belong here; write it below [%s]", k.Table)
		}
	}
	table := at[0]
	if isNamed(table) { // it has keys of [sharing]
		table = "sharing"
	}
	if instead := removed[table+"."+name]; instead != "" {
		return "the key was removed; delete the line: " + instead
	}
	return "there is no such key" + suggest(name, slices.Sorted(maps.Keys(keys)))
}

// removed are keys of earlier snapshots, with what holds now.
var removed = map[string]string{
	"budgets.tolerance_percent": tolerates,
	"budgets.tolerance_vram":    tolerates,
	"elastic.demand": "the agent reads what the access points count; if none counts, it assumes that both kinds of " +
		"jobs wait",
	"growth.factor":        "each retry asks for twice the VRAM",
	"growth.limit_percent": "a job met its limit at 90 % of its budget",
	"health.deadline":      "a control daemon has 3s for each reply",
	"health.max_age": "a GPU closes if its last health check is older than four times interval, and than " +
		"a minute",
	"htcondor.container_pipes":     "containers get pipe directories read-write",
	"metrics.pprof":                "there is no profiling listener",
	"paths.condor_config":          "the agent writes condor/execution-point.conf below paths.run",
	"placement.large_request":      "a large request is at least half of the largest one of the node's shared GPUs",
	"repartition.changes_per_hour": "a GPU changes in an hour as often as dwell fits into it",
	"repartition.interval": "the agent looks at what waits once a minute, or ten times within dwell, if that is more " +
		"often",
	"sharing.clients_per_share": "a job may have as many MPS clients as the driver serves, divided by the shares",
}

const tolerates = "a job may use 5 % or 256 MiB above its budget, whichever is more"

// fullName puts a host's name together again that TOML took apart at its dots.
func fullName(at toml.Key, name string, value any) string {
	full := at[1] + "." + name
	for {
		table, _ := value.(map[string]any)
		if len(table) != 1 {
			return full
		}
		for name, value = range table {
			if _, ok := value.(map[string]any); !ok {
				return full
			}
			full += "." + name
		}
	}
}

// suggest names the nearest of the right words, or all of them.
func suggest(got string, words []string) string {
	best, least := "", 3 // two slips of the pen are a near miss
	for _, w := range words {
		if d := distance(strings.ReplaceAll(strings.ToLower(foreign.Clip(got)), "-", "_"), w); d < least && d < len(w)/2+1 {
			best, least = w, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	return "; write one of " + strings.Join(slices.Sorted(slices.Values(words)), ", ")
}

// distance is the number of insertions, deletions and replacements between two
// words (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
