package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/condor"
)

// withBinds is the environment in which containers get the job's pipe
// directory, if it has one, and, with a clean environment, the variables. The hook has named
// the directory already; HTCondor takes the job's
// APPTAINER_* and SINGULARITY_* away from the containers that it starts itself
// (25.14), and a site's own environment may have come on top. A container that
// HTCondor starts gets what "gpuslot-condor here" needs as well; one that the
// job starts may be in another container, where that is not.
func withBinds(environ, command, forHere []string) []string {
	lookup := func(name string) string { return lookupIn(environ, name) }
	bind := lookup(condor.BindVariable)
	if bind == "" {
		bind = lookup("CUDA_MPS_PIPE_DIRECTORY")
	}
	var binds []string
	switch {
	case bind != "":
		binds = []string{bind}
	case lookup("GPUSLOT_GPU") == "":
		return environ
	}
	if startsContainer(command) {
		binds = append(binds, forHere...)
	}
	set := condor.Binds(lookup, binds...)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if condor.Reserved(name) || strings.HasPrefix(name, "GPUSLOT_") {
			for _, prefix := range containers {
				set[prefix+name] = value // stands in a clean environment, too
			}
		}
	}
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if _, ours := set[name]; !ours {
			out = append(out, entry)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// bindsForHere are the agent's socket and this program.
func bindsForHere(socket string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	dir := filepath.Dir(self)
	return []string{socket, dir + ":" + dir + ":ro"}
}

// startsContainer: the command is that of HTCondor's container universe.
func startsContainer(command []string) bool {
	name := filepath.Base(command[0])
	return name == "apptainer" || name == "singularity"
}

// lookupIn is the last value of a variable, as a shell would take it.
func lookupIn(environ []string, name string) string {
	value := ""
	for _, entry := range environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
