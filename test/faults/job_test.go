package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

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
	// program stands in for simjob.
	program string
}

// job is a job that was started, whatever became of it.
type job struct {
	request
	id, slot string
	out      string // directory of its output files
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	// decided is closed when the hook has answered, ended with the starter.
	decided, ended chan struct{}

	mu       sync.Mutex
	event    order.Event // the hook's answer
	statuses []int
	trouble  string
	// touched says what the test did to it: its end proves nothing then.
	touched string
}

// owner is the job ad's Owner.
func (r request) owner() string { return fmt.Sprintf("user%d", r.uid) }

// hookLimit bounds the hook's answer; its own limit is 20 s.
const hookLimit = 25 * time.Second

// run starts a job below a starter of its own. Slot names are never used twice.
func (n *node) run(r request, number int) *job {
	n.t.Helper()
	j := &job{request: r, id: fmt.Sprintf("1.%d", number), slot: fmt.Sprintf("slot%d_%d", r.gpu+1, number),
		decided: make(chan struct{}), ended: make(chan struct{})}
	j.out = n.path("out", j.slot)
	if err := os.MkdirAll(j.out, 0o755); err != nil {
		n.t.Fatal(err)
	}
	text, err := json.Marshal(n.orderOf(j))
	if err != nil {
		n.t.Fatal(err)
	}
	j.cmd = exec.Command(n.path("prog/condor_starter"), "-f", "-local-name", "slot_type_1", "-a", j.slot, "faults")
	j.cmd.Stderr = os.Stderr
	out, err := j.cmd.StdoutPipe()
	if err == nil {
		j.stdin, err = j.cmd.StdinPipe()
	}
	if err == nil {
		err = j.cmd.Start()
	}
	if err == nil {
		_, err = j.stdin.Write(append(text, '\n'))
	}
	if err != nil {
		n.t.Fatal(err)
	}
	go j.follow(out)
	return j
}

func (n *node) orderOf(j *job) order.Order {
	o := order.Order{
		Hook: []string{n.path("prog/gpuslot-condor"), "prepare", "--socket", n.socket()},
		HookEnv: []string{"PATH=/usr/bin:/bin", "_CONDOR_AssignedGPUs=" + n.uuids[j.gpu], "_CONDOR_SLOT=" + j.slot,
			"_CONDOR_SCRATCH_DIR=" + j.out, "_CONDOR_JOB_AD=" + j.out + "/.job.ad", "_CONDOR_MACHINE_AD=" + j.out + "/.machine.ad"},
		JobAd: fmt.Sprintf("ClusterId = 1\nProcId = %s\nOwner = %q\nRequestGPUs = 1\nRequestVRAM = %d\nGpusProvisioned = 1\nVramProvisioned = %d\nEnvironment = \"A=1\"\n",
			strings.TrimPrefix(j.id, "1."), j.owner(), j.budget, j.budget),
		UID:    j.uid,
		Env:    n.vars(),
		Forged: j.forged,
		Output: j.out,
	}
	if n.cgroup != "" {
		o.Cgroup = filepath.Join(n.cgroup, "htcondor", "condor_var_lib_condor_execute_"+j.slot+"@"+hostName)
	}
	program := j.program
	if program == "" {
		program = n.path("sim/bin/simjob")
	}
	for _, words := range j.processes {
		o.Processes = append(o.Processes, append([]string{program}, strings.Fields(words)...))
	}
	return o
}

// hostName ends the slots' names.
const hostName = "wn1.example.org"

// follow reads what the starter tells until it ends.
func (j *job) follow(out io.Reader) {
	defer close(j.ended)
	decide := sync.OnceFunc(func() { close(j.decided) })
	defer decide()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e order.Event
		err := json.Unmarshal(lines.Bytes(), &e)
		j.mu.Lock()
		switch {
		case err != nil:
			j.trouble = err.Error()
		case e.Failed != "":
			j.trouble = e.Failed
		case e.Ended != nil:
			j.statuses = e.Ended
		default:
			j.event = e
		}
		j.mu.Unlock()
		decide()
	}
	_ = j.cmd.Wait()
}

// answer waits for the hook: whether the job runs, and its refusal if not.
func (j *job) answer() (runs bool, why string) {
	select {
	case <-j.decided:
	case <-time.After(hookLimit):
		return false, "the hook does not answer"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.trouble != "" {
		return false, j.trouble
	}
	return len(j.event.PIDs) > 0, j.event.Message
}

func (j *job) say(command string) { _, _ = io.WriteString(j.stdin, command+"\n") }

func (j *job) touch(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.touched == "" {
		j.touched = why
	}
}

// over says whether the starter has ended, and with it the job's claim.
func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// pids are the job's processes.
func (j *job) pids() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.event.PIDs
}

func (j *job) env() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.event.Env
}

// output is what its processes said.
func (j *job) output() string {
	var b strings.Builder
	for i := range j.processes {
		text, _ := os.ReadFile(filepath.Join(j.out, strconv.Itoa(i)))
		b.Write(text)
	}
	return b.String()
}

// disturbed says what befell a job that nobody touched; empty if it runs well
// or ended well.
func (j *job) disturbed() string {
	out := j.output()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.touched != "" || len(j.event.PIDs) == 0 {
		return ""
	}
	if strings.Contains(out, ": error ") {
		return "it met an error: " + out
	}
	for _, s := range j.statuses {
		if s != 0 {
			return fmt.Sprintf("it ended with %v: %s", j.statuses, out)
		}
	}
	return j.trouble
}

func (j *job) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("%s (job %s of %s on GPU %d, %d MiB, processes %v, touched %q, ended %v)", j.slot, j.id, j.owner(), j.gpu, j.budget, j.event.PIDs, j.touched, j.statuses)
}
