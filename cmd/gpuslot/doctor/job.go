package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// contractScript is a job that says what HTCondor gave it: gpuslot builds on
// each of these lines, and an upgrade of HTCondor may change any.
const contractScript = `#!/bin/sh
sed 's/^/cgroup /' /proc/self/cgroup
env | grep -E '^(CUDA_VISIBLE_DEVICES|CUDA_MPS_PIPE_DIRECTORY|GPUSLOT_GPU|GPUSLOT_ENFORCED_BY|_CONDOR_SLOT|_CONDOR_SCRATCH_DIR)=' | sed 's/^/env /'
echo "parent $(tr '\0' ' ' </proc/$PPID/cmdline)"
echo "directory $(pwd -P)"
[ -w "$_CONDOR_SCRATCH_DIR" ] && echo "scratch writable"
[ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo "pipe reachable"
sleep "$1"
`

// contractSubmit describes that job; the directory, the machine's name and what
// else it asks for are filled in.
const contractSubmit = `executable = %[1]s/job.sh
arguments = %[3]s
output = %[1]s/out
error = %[1]s/err
log = %[1]s/log
should_transfer_files = yes
request_cpus = 1
request_memory = 64
request_disk = 10M
request_gpus = 1
%[4]srequirements = TARGET.Machine == "%[2]s"
queue
`

// contractVRAM is the least that any site grants. HTCondor's own GPUs, on an
// observed node, have none to ask for.
const contractVRAM = "request_vram = 1024\n"

// observedSeconds is how long the job on an observed node runs: the agent has to
// see it.
const observedSeconds = 5

// contractTimeout is for a place in the queue, too.
const contractTimeout = 3 * time.Minute

// contractJob is what came of the job.
type contractJob struct {
	said string // what it printed
	err  error
	// unable is why none was submitted: the node runs none, as other findings say.
	unable string
	// recorded: the agent keeps a record of it.
	recorded bool
}

// contractUser is the account that the job runs as.
type contractUser struct{ *user.User }

// contractRunner finds the user; nil where no job is asked for.
func contractRunner(name string) (*contractUser, error) {
	if name == "" {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, show.Hint(errors.New("only root may submit a job as another account"), "sudo gpuslot doctor --job "+name)
	}
	who, err := user.Lookup(name)
	if err != nil {
		return nil, show.Hint(err, "--job names the account that the job runs as")
	}
	return &contractUser{who}, nil
}

// job submits the job here, unless the node is known to run none.
func (u contractUser) job(ctx context.Context, progress io.Writer, f facts) *contractJob {
	if why := runsNone(f); why != "" {
		return &contractJob{unable: why}
	}
	began := time.Now()
	id, said, err := u.run(ctx, progress, f.plan.Observe)
	j := &contractJob{said: said, err: err}
	if err == nil && f.plan.Observe {
		j.recorded = awaitRecord(ctx, f.config.Paths, id, began)
	}
	return j
}

// runsNone is why a job would wait in vain.
func runsNone(f facts) string {
	switch {
	case f.statusErr != nil:
		return "the agent does not answer"
	case f.away():
		return f.status.Node.Headline()
	case !slices.ContainsFunc(f.status.GPUs, func(g api.StatusGPU) bool { return g.Accept }):
		return "no GPU takes jobs"
	}
	return ""
}

// run returns the job's id and what it printed.
func (u contractUser) run(ctx context.Context, progress io.Writer, observed bool) (id, said string, err error) {
	host, err := condorCommand(ctx, nil, "condor_config_val", "FULL_HOSTNAME")
	if err != nil {
		return "", "", err
	}
	folder, err := newUserFolder(ctx, u.User)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, folder.remove(ctx)) }()
	if err := folder.write(ctx, "job.sh", contractScript); err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, contractTimeout)
	defer cancel()
	seconds, asks := 0, contractVRAM
	if observed {
		seconds, asks = observedSeconds, ""
	}
	submit := fmt.Sprintf(contractSubmit, folder.dir, strings.TrimSpace(host), strconv.Itoa(seconds), asks)
	id, err = folder.run(ctx, submit, "condor_submit", "-terse", "-")
	if err != nil {
		return "", "", fmt.Errorf("%w; on a machine without an access point run any GPU job here, "+
			"and see gpuslot why JOB", err)
	}
	id, _, _ = strings.Cut(strings.TrimSpace(id), " ") // "12.0 - 12.0"
	if !jobID.MatchString(id) {
		return "", "", fmt.Errorf("condor_submit printed no job id: %q; run it by hand as %s", fmt.Sprintf("%.40s", id),
			u.Username)
	}
	fmt.Fprintf(progress, "job %s of %s is submitted; it may take %s\n", id, u.Username, contractTimeout)
	cluster, _, _ := strings.Cut(id, ".")
	if err := awaitContract(ctx, folder, cluster); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctorCondorTimeout)
		defer cancel()
		_, rmErr := folder.run(clean, "", "condor_rm", cluster)
		return "", "", errors.Join(err, rmErr)
	}
	said, err = folder.run(ctx, "", "cat", "out")
	return id, said, err
}

// jobID is what condor_submit -terse prints of one job.
var jobID = regexp.MustCompile(`^[0-9]{1,10}\.[0-9]{1,10}$`)

// recordTimeout is how long after a job's end its record may take to come.
const recordTimeout = 20 * time.Second

// awaitRecord says whether the agent keeps a record of a job.
func awaitRecord(ctx context.Context, paths config.Paths, id string, since time.Time) bool {
	for begin := time.Now(); ctx.Err() == nil && time.Since(begin) < recordTimeout; {
		records, err := history.Records(paths, since)
		if err == nil && slices.ContainsFunc(records, func(r record.Job) bool { return r.Job == id }) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return false
}

// awaitContract waits until the job has left the queue, and says why it does not.
func awaitContract(ctx context.Context, folder userFolder, cluster string) error {
	for {
		state, err := folder.run(ctx, "", "condor_q", cluster, "-af", "JobStatus", "HoldReason")
		words, reason, _ := strings.Cut(strings.TrimSpace(state), " ")
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the job did not end within %s and was removed: "+
				"condor_q -better-analyze shows why a job like it does not start", contractTimeout)
		case err != nil:
			return err
		case words == "5": // held
			return fmt.Errorf("the job was held: %s", reason)
		case words == "": // gone
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
