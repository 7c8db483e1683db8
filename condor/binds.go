package condor

import "strings"

// BindVariable holds what a job's containers need to have bound: the pipe
// directory of its GPU, as "apptainer exec --bind" takes it.
const BindVariable = "GPUSLOT_BIND"

// bindVariables are where apptainer and singularity look for what to bind into
// every container that a job starts ("--bind" of their manuals: a list with commas).
var bindVariables = []string{"APPTAINER_BIND", "SINGULARITY_BIND"}

// Binds are the variables by which containers get a bind besides those that
// the environment asks for. Apptainer reads the second variable only without the
// first, and complains if both are there and differ; so each gets all of both.
func Binds(lookup func(name string) string, binds ...string) map[string]string {
	var all []string
	add := func(entries ...string) {
		for _, e := range entries {
			if e = strings.TrimSpace(e); e != "" && !bound(all, e) {
				all = append(all, e)
			}
		}
	}
	for _, name := range bindVariables {
		add(strings.Split(lookup(name), ",")...)
	}
	add(binds...)
	out := map[string]string{}
	for _, name := range bindVariables {
		if len(all) > 0 {
			out[name] = strings.Join(all, ",")
		}
	}
	return out
}

// bound: an entry is there already. One source may have several destinations.
func bound(all []string, entry string) bool {
	for _, e := range all {
		if destination(e) == destination(entry) {
			return true
		}
	}
	return false
}

// destination is where a bind of the form source[:destination[:options]] appears.
func destination(bind string) string {
	parts := strings.SplitN(bind, ":", 3)
	if len(parts) > 1 && parts[1] != "" {
		return parts[1]
	}
	return parts[0]
}
