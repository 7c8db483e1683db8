package condor

import "strings"

// BindVariable holds what a job's containers need to have bound: the pipe
// directory of its GPU, as "apptainer exec --bind" takes it.
const BindVariable = "GPUSLOT_BIND"

// BindVariables are where apptainer and singularity look for what to bind into
// every container that a job starts ("--bind" of their manuals: a list with commas).
var BindVariables = []string{"APPTAINER_BIND", "SINGULARITY_BIND"}

// Binds are the variables by which containers get a bind besides those that
// the environment asks for. Apptainer reads the second variable only without the
// first, and complains if both are there and differ; so each gets all of both.
func Binds(lookup func(name string) string, binds ...string) map[string]string {
	var all []string
	bound := map[string]bool{} // by destination: one source may have several
	add := func(entries ...string) {
		for _, e := range entries {
			if e = strings.TrimSpace(e); e != "" && !bound[destination(e)] {
				all, bound[destination(e)] = append(all, e), true
			}
		}
	}
	for _, name := range BindVariables {
		add(strings.Split(lookup(name), ",")...)
	}
	add(binds...)
	out := map[string]string{}
	for _, name := range BindVariables {
		if len(all) > 0 {
			out[name] = strings.Join(all, ",")
		}
	}
	return out
}

// destination is where a bind of the form source[:destination[:options]] appears.
func destination(bind string) string {
	parts := strings.SplitN(bind, ":", 3)
	if len(parts) > 1 && parts[1] != "" {
		return parts[1]
	}
	return parts[0]
}
