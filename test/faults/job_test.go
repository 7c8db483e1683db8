package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gpuslot/gpuslot/test/faults/order"
)

// request is a job as it is submitted.
type request struct {
	gpu    int
	uid    uint32
	budget int64 // MiB
	// processes are simjob's words, one text for each process.
	processes []string
	// forged are variables that the job's own script sets.
	forged []string
}

// job is a job that was started, whatever became of it.
type job struct {
	request
	order.Slot
	*order.Started

	mu   sync.Mutex
	held string // the reason for which the startd held it
	// touched says what the test did to it: its end proves nothing then.
	touched string
}

// owner is the job ad's Owner.
func (r request) owner() string { return fmt.Sprintf("user%d", r.uid) }

// job is a request in its slot, not yet started. Slot names are never used twice.
func (n *node) job(r request, number int) *job {
	name := fmt.Sprintf("slot%d_%d", r.gpu+1, number)
	return &job{request: r, Slot: order.Slot{
		Name: name, Job: fmt.Sprintf("1.%d", number), Owner: r.owner(), UID: r.uid,
		GPU: n.uuids[r.gpu], Budget: r.budget, Dir: n.path("out", name),
	}}
}

// run starts a job below a starter of its own.
func (n *node) run(j *job) {
	n.t.Helper()
	err := os.MkdirAll(j.Dir, 0o755)
	if err == nil {
		j.Started, err = order.Start(n.path("prog/condor_starter"), j.Name, n.orderOf(j), os.Stderr)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) orderOf(j *job) order.Order {
	o := j.Order(n.path("prog/gpuslot-condor"), n.socket())
	o.Env, o.Forged, o.Cgroup = append(n.vars(), o.Env...), j.forged, j.Cgroup(n.cgroup)
	o.Command = append(n.wrapper(), n.script(j.request)...)
	return o
}

// wrapper is the job wrapper of the generated configuration.
func (n *node) wrapper() []string {
	return []string{n.path("prog/gpuslot-condor"), "supervise", "--socket", n.socket(), "--"}
}

// script is the job's own command line: a program, or a shell that starts
// several and waits for them.
func (n *node) script(r request) []string {
	if len(r.processes) == 1 {
		return append([]string{n.path("sim/bin/simjob")}, strings.Fields(r.processes[0])...)
	}
	script := "exec 3<&0\n"
	for _, words := range r.processes {
		script += n.path("sim/bin/simjob") + " " + words + " <&3 &\n"
	}
	return []string{"/bin/sh", "-c", script + "wait"}
}

// answer waits for the hook: nil if the job runs, its refusal if not.
func (j *job) answer() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return j.Answer(ctx)
}

func (j *job) touch(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.touched == "" {
		j.touched = why
	}
}

// hold is the startd's: the reason is kept, and the job told to end.
func (j *job) hold(why string) {
	j.mu.Lock()
	first := j.held == ""
	j.held = why
	j.mu.Unlock()
	if first {
		j.Say(order.Term)
	}
}

func (j *job) holdReason() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

func (j *job) isTouched() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.touched != ""
}

// clients are the PIDs of the job's GPU processes, which its wrapper started.
func (n *node) clients(j *job) []int {
	first := j.Told().PID
	var out []int
	for _, p := range n.processes() {
		for up := p; p.program == "simjob" && up.pid > 1; {
			if up.pid == first {
				out = append(out, p.pid)
				break
			}
			parent, ok := statOf(up.parent)
			if !ok {
				break
			}
			up = parent
		}
	}
	return out
}

// output is what its processes said.
func (j *job) output() string {
	text, _ := os.ReadFile(filepath.Join(j.Dir, "out"))
	return string(text)
}

// disturbed says what befell a job that nobody touched; empty if it runs well
// or ended well.
func (j *job) disturbed() string {
	out, told := j.output(), j.Told()
	if j.isTouched() || told.PID == 0 {
		return ""
	}
	held := j.holdReason()
	switch {
	case strings.Contains(out, ": error "):
		return "it met an error: " + out
	case held != "":
		return "it was held: " + held
	case told.Ended != nil && *told.Ended != 0:
		return fmt.Sprintf("it ended with status %d: %s", *told.Ended, out)
	}
	return told.Failed
}

func (j *job) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	told := j.Told()
	text := fmt.Sprintf("%s (job %s of %s on GPU %d, %d MiB, first process %d", j.Name, j.Job, j.Owner, j.gpu, j.budget, told.PID)
	if j.touched != "" {
		text += ", " + j.touched
	}
	if told.Ended != nil {
		text += fmt.Sprintf(", ended with %d", *told.Ended)
	}
	return text + ")"
}
