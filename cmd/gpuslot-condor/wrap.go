package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/hook"
	"github.com/gpuslot/gpuslot/condor"
)

// What wrap ends with if the job does not start; the shell's own for the last two.
const (
	notAdmitted   = 1
	notExecutable = 126
	notFound      = 127
)

// wrap becomes the job, with the environment that the agent gives it. HTCondor
// takes a wrapper's failure for the job's own (23 and 25, measured), so this
// wrapper cannot requeue: the hook is the one to use where a site can.
func (p program) wrap(args []string) int {
	o, err := p.parse("wrap", args, prepareTimeout)
	if err != nil || len(o.args) == 0 {
		fmt.Fprintln(p.stderr, "gpuslot-condor: wrap needs a command")
		return usage
	}
	env := os.Environ()
	if p.getenv(assignedGPUs) != "" {
		grant, refusal := hook.Decision(o.askFor(hook.Job(p.jobOnDisk(), p.getenv(assignedGPUs))))
		if refusal != nil {
			return p.giveUp(fmt.Sprintf("gpuslot refuses to start the job (%d): %s", refusal.Code, refusal.Reason), notAdmitted)
		}
		env = withBinds(wrapped(env, grant), o.args, bindsForHere(o.socket))
	}
	path, err := exec.LookPath(o.args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return p.giveUp(fmt.Sprintf("gpuslot cannot find the job's program: %v", err), notFound)
	}
	err = syscall.Exec(path, o.args, env)
	return p.giveUp(fmt.Sprintf("gpuslot cannot execute %s: %v", path, err), notExecutable)
}

// jobOnDisk is what the job's ad file says. The job can forge that file, so an
// unreadable one is as good: the agent believes the startd.
func (p program) jobOnDisk() condor.Job {
	f, err := os.Open(p.getenv("_CONDOR_JOB_AD"))
	if err != nil {
		return condor.Job{}
	}
	defer f.Close()
	job, err := condor.ReadJob(f)
	if err != nil {
		return condor.Job{}
	}
	return job
}

// giveUp tells the user (stderr) and the starter (its error file).
func (p program) giveUp(message string, status int) int {
	message = condor.Sentence(message) + "\n"
	fmt.Fprint(p.stderr, message)
	if path := p.getenv("_CONDOR_WRAPPER_ERROR_FILE"); path != "" {
		// Best effort: the message is on stderr, and the job ends either way.
		_ = os.WriteFile(path, []byte(message), 0o644)
	}
	return status
}

// containers are the prefixes under which apptainer and singularity hand a
// variable on, even with a clean environment.
var containers = []string{"APPTAINERENV_", "SINGULARITYENV_"}

// wrapped is the environment of an admitted job: without what is reserved,
// with the grant, for the job itself and for a container around it. A default
// gives way to the job's own value in whatever form.
func wrapped(environ []string, grant api.Grant) []string {
	var env []string
	has := map[string]bool{}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if name = withoutContainer(name); !condor.Reserved(name) && !replaced(grant, name) {
			env = append(env, entry)
			has[name] = true
		}
	}
	set := func(name, value string) {
		for _, prefix := range append([]string{""}, containers...) {
			env = append(env, prefix+name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(grant.Environment)) {
		set(name, grant.Environment[name])
	}
	for _, name := range slices.Sorted(maps.Keys(grant.Defaults)) {
		if !has[name] && !replaced(grant, name) {
			set(name, grant.Defaults[name])
		}
	}
	return env
}

func replaced(grant api.Grant, name string) bool {
	_, ok := grant.Environment[name]
	return ok
}

// withoutContainer is the name that a variable has inside a container.
func withoutContainer(name string) string {
	for _, prefix := range containers {
		if bare, ok := strings.CutPrefix(name, prefix); ok {
			return bare
		}
	}
	return name
}
