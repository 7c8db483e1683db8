package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
}

// job is a job that was started, whatever became of it.
type job struct {
	request
	id, slot string
	out      string // directory of its files
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	// decided is closed when the hook has answered, ended with the starter.
	decided, ended chan struct{}

	mu      sync.Mutex
	event   order.Event // the hook's answer
	status  *int
	trouble string
	held    string // the reason for which the startd held it
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
		Output: filepath.Join(j.out, "out"),
	}
	if n.cgroup != "" {
		o.Cgroup = filepath.Join(n.cgroup, "htcondor", "condor_var_lib_condor_execute_"+j.slot+"@"+hostName)
	}
	o.Env = append(o.Env, "_CONDOR_AssignedGPUs="+n.uuids[j.gpu], "_CONDOR_JOB_AD="+j.out+"/.job.ad", "_CONDOR_MACHINE_AD="+j.out+"/.machine.ad")
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
			j.status = e.Ended
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
	return j.event.PID != 0, j.event.Message
}

func (j *job) say(command string) { _, _ = io.WriteString(j.stdin, command+"\n") }

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
		j.say(order.Term)
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

// over says whether the starter has ended, and with it the job's claim.
func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// clients are the PIDs of the job's GPU processes, which its wrapper started.
func (n *node) clients(j *job) []int {
	j.mu.Lock()
	first := j.event.PID
	j.mu.Unlock()
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
	text, _ := os.ReadFile(filepath.Join(j.out, "out"))
	return string(text)
}

// disturbed says what befell a job that nobody touched; empty if it runs well
// or ended well.
func (j *job) disturbed() string {
	out := j.output()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.touched != "" || j.event.PID == 0 {
		return ""
	}
	if strings.Contains(out, ": error ") {
		return "it met an error: " + out
	}
	switch {
	case j.held != "":
		return "it was held: " + j.held
	case j.status != nil && *j.status != 0:
		return fmt.Sprintf("it ended with status %d: %s", *j.status, out)
	}
	return j.trouble
}

func (j *job) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := fmt.Sprintf("%s (job %s of %s on GPU %d, %d MiB, first process %d", j.slot, j.id, j.owner(), j.gpu, j.budget, j.event.PID)
	if j.touched != "" {
		text += ", " + j.touched
	}
	if j.status != nil {
		text += fmt.Sprintf(", ended with %d", *j.status)
	}
	return text + ")"
}
