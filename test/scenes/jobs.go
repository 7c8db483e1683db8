package scenes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// The job: it prints its environment, asks the control daemon of its pipe
// directory a question, and sleeps. The daemon serves one connection at a
// time, so a job among eight asks until its own end marker comes back.
const jobScript = `#!/bin/sh
echo "START $(date +%s.%N)"
env | grep -E '^(CUDA_|NVIDIA_|GPUSLOT_|TF_|XLA_|_CONDOR_(SLOT|AssignedGPUs))' | sed 's/^/ENV /'
if [ -n "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_PIPE_DIRECTORY" ]; then
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    reply=$(printf 'get_default_active_thread_percentage\neof-%s\n' $$ | timeout 5 nvidia-cuda-mps-control 2>&1)
    case $reply in *"eof-$$"*) echo "DAEMON $reply" | head -n 1; break;; esac
    sleep 0.2
  done
fi
sleep "${1:-1}"
[ -z "$2" ] || cat "$2" 2>/dev/null
echo "END $(date +%s.%N)"
`

// program is what a job runs: a file in the home directory of who submits.
type program struct{ name, text string }

// job is a kind of job to submit.
type job struct {
	// Program of the job; default jobScript, which runs for Seconds.
	Program program
	// Arguments of another Program.
	Arguments string
	// Lines of the submit file besides the usual ones.
	Lines []string
	// Seconds each job runs, and on while the file Hold is there.
	Seconds int
	Hold    string
	// Queue is the queue statement; default "queue".
	Queue string
}

const user = "alice"

// submit puts the jobs into the queue and returns their cluster.
func (st *Stage) submit(ctx context.Context, j job) (int, error) {
	return st.submitAs(ctx, user, j)
}

func (st *Stage) submitAs(ctx context.Context, who string, j job) (int, error) {
	if j.Program.name == "" {
		j.Program, j.Arguments = program{"job.sh", jobScript}, strings.TrimSpace(fmt.Sprintf("%d %s", max(j.Seconds, 1), j.Hold))
	}
	path := "/home/" + who + "/" + j.Program.name
	if err := st.WriteFile(ctx, path, node.File{Data: j.Program.text, Mode: 0o755, Owner: who}); err != nil {
		return 0, err
	}
	if j.Queue == "" {
		j.Queue = "queue"
	}
	lines := append([]string{
		"executable = " + path,
		"arguments = " + j.Arguments,
		"output = job.$(Cluster).$(Process).out",
		"error = job.$(Cluster).$(Process).err",
		"should_transfer_files = yes",
		"request_cpus = 1", "request_memory = 50", "request_disk = 10M",
	}, j.Lines...)
	return st.Submit(ctx, who, strings.Join(append(lines, j.Queue), "\n")+"\n")
}

// vram asks for a part of a GPU, in MiB; more are other lines.
func vram(mib int, more ...string) []string {
	return append([]string{"request_gpus = 1", fmt.Sprintf("request_vram = %d", mib)}, more...)
}

// on pins a job to one GPU by the inventory property.
func on(u gpu.UUID) string { return fmt.Sprintf(`require_gpus = DeviceUuid == "%s"`, u.Bare()) }

// complete submits a job and waits for its end.
func (st *Stage) complete(ctx context.Context, j job) (cluster int, err error) {
	if cluster, err = st.submit(ctx, j); err != nil {
		return 0, err
	}
	return cluster, st.waitJobs(ctx, cluster, completed)
}

// told is the output of a job that is submitted now.
func (st *Stage) told(ctx context.Context, j job) (output, error) {
	cluster, err := st.complete(ctx, j)
	if err != nil {
		return output{}, err
	}
	return st.output(ctx, cluster, 0)
}

// output is what one finished job printed.
type output struct {
	Env        map[string]string
	Daemon     string
	Start, End time.Time
}

func (st *Stage) output(ctx context.Context, cluster, proc int) (output, error) {
	text, err := st.printed(ctx, user, cluster, proc)
	if err != nil {
		return output{}, err
	}
	return parseOutput(text)
}

// printed is the standard output of a job that ended.
func (st *Stage) printed(ctx context.Context, who string, cluster, proc int) (string, error) {
	text, err := st.RunAs(ctx, who, "cat", fmt.Sprintf("/home/%s/job.%d.%d.out", who, cluster, proc))
	return text.Stdout, err
}

func parseOutput(text string) (output, error) {
	o := output{Env: map[string]string{}}
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "START", "END":
			sec, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				return o, fmt.Errorf("job output: %w", err)
			}
			at := time.UnixMilli(int64(sec * 1000))
			if word == "START" {
				o.Start = at
			} else {
				o.End = at
			}
		case "ENV":
			name, value, _ := strings.Cut(rest, "=")
			o.Env[name] = value
		case "DAEMON":
			o.Daemon = rest
		}
	}
	if o.Start.IsZero() || o.End.IsZero() {
		return o, fmt.Errorf("job output is not complete: %s", oneLine(text))
	}
	return o, nil
}

// Job states of HTCondor.
const (
	idle      = 1
	running   = 2
	completed = 4
	held      = 5
)

// What the event log says when a job was submitted, and when it starts for good, after the hook.
const (
	submitted = "Job submitted from host"
	executing = "Job executing on host"
)

// waitJobs is WaitJobs with a deadline of its own. Jobs run when their programs do:
// HTCondor says so before the hook has admitted them.
func (st *Stage) waitJobs(ctx context.Context, cluster int, states ...int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	if err := st.WaitJobs(ctx, cluster, states...); err != nil || !slices.Equal(states, []int{running}) {
		return err
	}
	return st.Wait(ctx, fmt.Sprintf("the programs of %d", cluster), func() bool {
		log, err := st.JobLog(ctx, cluster)
		return err == nil && strings.Count(log, executing) >= strings.Count(log, submitted)
	})
}

// waitLog waits until the events of a cluster say something.
func (st *Stage) waitLog(ctx context.Context, cluster int, want string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var log string
	err := st.Wait(ctx, fmt.Sprintf("%q in the events of %d", want, cluster), func() bool {
		log, _ = st.JobLog(ctx, cluster)
		return strings.Contains(log, want)
	})
	return log, err
}

// remove takes a cluster out of the queue and waits until it is gone.
func (st *Stage) remove(ctx context.Context, cluster int) error {
	if _, err := st.RunAs(ctx, user, "condor_rm", strconv.Itoa(cluster)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, "the removed jobs to be gone", func() bool {
		out, err := st.Run(ctx, "condor_q", "-all", strconv.Itoa(cluster), "-af", "ProcId")
		return err == nil && strings.TrimSpace(out.Stdout) == ""
	})
}

// staysIdle watches for a time that a job is never started. The schedd counts the starts.
func (st *Stage) staysIdle(ctx context.Context, cluster int, watch time.Duration) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(watch):
	}
	rows, err := st.JobAttrs(ctx, cluster, "JobStatus", "NumShadowStarts")
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(row []string) bool {
		return row[0] != strconv.Itoa(idle) || row[1] != "undefined"
	}), err
}
