package doctor

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor/cgroup"
)

// contract is what the job of doctor --job printed.
type contract struct {
	cgroup string // /proc/self/cgroup
	env    map[string]string
	parent string // the command line of its parent
	has    map[string]bool
}

// parseContract reads what contractScript prints; other lines are left out.
func parseContract(text string) contract {
	c := contract{env: map[string]string{}, has: map[string]bool{}}
	for line := range strings.Lines(text) {
		line = show.Visible(strings.TrimSuffix(line, "\n"))
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "cgroup":
			c.cgroup += rest + "\n"
		case "env":
			name, value, _ := strings.Cut(rest, "=")
			c.env[name] = value
		case "parent":
			c.parent = rest
		case "scratch", "pipe":
			c.has[line] = true
		}
	}
	return c
}

// checkOneJob is the name of the check that --job asks for.
const checkOneJob = "one job"

// notRun is what there is to say where no job ran to its end, or none was asked for.
func notRun(j *contractJob) (found []Finding, done bool) {
	switch {
	case j == nil:
		return nil, true
	case j.unable != "":
		return unchecked(checkOneJob, "no job was submitted: "+j.unable, "see the findings about the agent"), true
	case j.err != nil:
		return []Finding{{Error, checkOneJob, show.OneLine(j.err.Error()),
			"A small GPU job of this user does not run here to its end.", "see gpuslot status and the other findings"}}, true
	}
	return nil, false
}

// checkContract says whether HTCondor does what gpuslot builds on, by what a job
// saw; nothing where none was asked for.
func checkContract(f facts) []Finding {
	if found, done := notRun(f.job); done {
		return found
	}
	const check = checkOneJob
	c := parseContract(f.job.said)
	var found []Finding
	broken := func(what, why string) {
		found = append(found, Finding{Error, check, what, why,
			"gpuslot is not made for this version of HTCondor, or another setting overrides ours: " +
				"see the findings on START, hook and job wrapper; else report it with the version"})
	}
	slot := c.env["_CONDOR_SLOT"]
	if named := cgroup.SlotIn([]byte(c.cgroup)); slot == "" || !strings.HasPrefix(named, slot+"@") {
		broken(fmt.Sprintf("its cgroup does not name its slot (%s): %s", slot, show.OneLine(c.cgroup)),
			"gpuslot finds by it whose process uses a GPU: budgets are not held.")
	}
	pipe, shared := c.env["CUDA_MPS_PIPE_DIRECTORY"]
	if c.env["GPUSLOT_GPU"] == "" || c.env["CUDA_VISIBLE_DEVICES"] == "" {
		broken("it did not get what the hook gives: GPUSLOT_GPU and CUDA_VISIBLE_DEVICES",
			"The PREPARE_JOB hook decides on every GPU job.")
	}
	if shared && (!strings.HasSuffix(pipe, "/"+c.env["GPUSLOT_GPU"]) || !c.has["pipe reachable"]) {
		broken("it does not reach its pipe directory: "+pipe,
			"It would meet no MPS server, and with an exclusive GPU no CUDA.")
	}
	if shared && f.config.HTCondor.Supervise && !strings.Contains(c.parent, "supervise") {
		broken("it does not run below the supervisor, but below: "+c.parent,
			"Its MPS clients do not leave before a signal ends them, and take neighbours along.")
	}
	if !c.has["scratch writable"] {
		broken("its scratch directory is not there or not writable: "+c.env["_CONDOR_SCRATCH_DIR"],
			"Caches of CUDA are put there.")
	}
	if len(found) == 0 {
		return fine(check, "a job in %s had the cgroup, hook, supervisor, "+
			"pipe directory and scratch that gpuslot builds on", slot)
	}
	return found
}
