package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// account is the jobs': nobody else on a machine has it.
const account = 64101

// job is a job below a starter of its own.
type job struct {
	id, slot, out string
	budget        int64
	cmd           *exec.Cmd
	stdin         io.WriteCloser
	// decided is closed when the hook has answered, ended with the starter.
	decided, ended chan struct{}

	mu      sync.Mutex
	event   order.Event
	status  *int
	trouble string
}

// run starts a job whose processes do what the words say, and waits for the
// hook's answer.
func (n *Node) run(ctx context.Context, budget int64, processes ...string) (*job, error) {
	n.number++
	j := &job{
		id: fmt.Sprintf("1.%d", n.number), slot: fmt.Sprintf("slot1_%d", n.number), budget: budget,
		decided: make(chan struct{}), ended: make(chan struct{}),
	}
	j.out = n.path("out", j.slot)
	if err := os.MkdirAll(j.out, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chown(j.out, account, account); err != nil {
		return nil, err
	}
	n.jobs = append(n.jobs, j)
	n.advertise() // the startd knows of a slot before its starter runs
	text, err := json.Marshal(n.orderOf(j, processes))
	if err != nil {
		return nil, err
	}
	j.cmd = exec.Command(n.path("prog/condor_starter"), "-f", "-local-name", "slot_type_1", "-a", j.slot, "gpu")
	j.cmd.Stderr, j.cmd.WaitDelay = &n.log, time.Second
	out, errOut := j.cmd.StdoutPipe()
	in, errIn := j.cmd.StdinPipe()
	if err := errors.Join(errOut, errIn, j.cmd.Start()); err != nil {
		close(j.ended)
		return nil, err
	}
	j.stdin = in
	go j.follow(out)
	if _, err := in.Write(append(text, '\n')); err != nil {
		return j, err
	}
	return j, j.answer(ctx)
}

func (n *Node) orderOf(j *job, processes []string) order.Order {
	o := order.Order{
		Hook: []string{n.path("prog/gpuslot-condor"), "prepare", "--socket", n.socket()},
		HookEnv: []string{"PATH=/usr/bin:/bin", "_CONDOR_AssignedGPUs=" + string(n.GPU.UUID), "_CONDOR_SLOT=" + j.slot,
			"_CONDOR_SCRATCH_DIR=" + j.out, "_CONDOR_JOB_AD=" + j.out + "/.job.ad", "_CONDOR_MACHINE_AD=" + j.out + "/.machine.ad"},
		JobAd: fmt.Sprintf("ClusterId = 1\nProcId = %s\nOwner = \"user\"\nRequestGPUs = 1\nRequestVRAM = %d\nGpusProvisioned = 1\nVramProvisioned = %d\nEnvironment = \"A=1\"\n",
			strings.TrimPrefix(j.id, "1."), j.budget, j.budget),
		UID:    account,
		Output: filepath.Join(j.out, "out"),
		Env:    []string{"PATH=/usr/bin:/bin", "_CONDOR_AssignedGPUs=" + string(n.GPU.UUID), "_CONDOR_JOB_AD=" + j.out + "/.job.ad", "_CONDOR_MACHINE_AD=" + j.out + "/.machine.ad"},
	}
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			o.Env = append(o.Env, name+"="+value)
		}
	}
	if n.cgroup != "" {
		o.Cgroup = filepath.Join(n.cgroup, "htcondor", "condor_var_lib_condor_execute_"+j.slot+"@"+hostName)
	}
	script := "exec 3<&0\n"
	for i, words := range processes {
		script += fmt.Sprintf("%s %s <&3 >%s/%d &\n", n.path("prog/gpujob"), words, j.out, i)
	}
	o.Command = []string{n.path("prog/gpuslot-condor"), "supervise", "--socket", n.socket(), "--", "/bin/sh", "-c", script + "wait"}
	return o
}

// advertise writes what condor_status tells: one ad for each dynamic slot.
func (n *Node) advertise() {
	var b strings.Builder
	for _, j := range n.jobs {
		if !j.over() {
			fmt.Fprintf(&b, "Name = \"%s@%s\"\nSlotType = \"Dynamic\"\nState = \"Claimed\"\nJobId = %q\nRemoteOwner = \"user@example.org\"\nAssignedGPUs = %q\nVRAM = %d\nGPUs = 1\nCpus = 1\n\n",
				j.slot, hostName, j.id, n.GPU.UUID, j.budget)
		}
	}
	temp := n.path("slots.new")
	if os.WriteFile(temp, []byte(b.String()), 0o644) == nil {
		_ = os.Rename(temp, n.path("slots"))
	}
}

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

// answer is the hook's: nil where the job runs.
func (j *job) answer(ctx context.Context) error {
	select {
	case <-j.decided:
	case <-ctx.Done():
		return errors.New("the hook does not answer")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.trouble != "" {
		return errors.New(j.trouble)
	}
	if j.event.PID == 0 {
		return fmt.Errorf("refused (%d): %s", j.event.Code, j.event.Message)
	}
	return nil
}

func (j *job) say(command string) {
	if j.stdin != nil {
		_, _ = io.WriteString(j.stdin, command+"\n")
	}
}

func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// lines are what one of its processes told.
func (j *job) lines(process int) (out []truth.Line) {
	b, err := os.ReadFile(filepath.Join(j.out, fmt.Sprint(process)))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		var l truth.Line
		if json.Unmarshal([]byte(line), &l) == nil && l.Step != "" {
			out = append(out, l)
		}
	}
	return out
}

// told finds the last line of a step.
func (j *job) told(process int, step string) (truth.Line, bool) {
	all := j.lines(process)
	for i := len(all) - 1; i >= 0; i-- {
		if strings.HasPrefix(all[i].Step, step) {
			return all[i], true
		}
	}
	return truth.Line{}, false
}

// await waits until a process told a step, some time.
func (j *job) await(ctx context.Context, process int, step string, most time.Duration) (truth.Line, error) {
	for deadline := time.Now().Add(most); ; {
		over := j.over()
		if l, ok := j.told(process, step); ok {
			return l, nil
		}
		if over || time.Now().After(deadline) || ctx.Err() != nil {
			return truth.Line{}, fmt.Errorf("process %d of job %s does not come to %q (over: %v): %+v", process, j.id, step, over, j.lines(process))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// end lets a job end by itself, or else kills it.
func (j *job) end() {
	j.say(order.Finish)
	select {
	case <-j.ended:
		return
	case <-time.After(time.Second):
	}
	j.say(order.Kill)
	select {
	case <-j.ended:
	case <-time.After(5 * time.Second):
		_ = j.cmd.Process.Kill() // the job ends with its starter, but for what hangs in the driver
		select {
		case <-j.ended:
		case <-time.After(5 * time.Second):
		}
	}
}

// endJobs ends all that run.
func (n *Node) endJobs() {
	for _, j := range n.jobs {
		if !j.over() {
			j.end()
		}
	}
	n.jobs = nil
	n.advertise()
}

// keep writes down what the processes of a job told.
func (j *job) keep(notes *truth.Notes, processes int) {
	for i := range processes {
		b, err := os.ReadFile(filepath.Join(j.out, fmt.Sprint(i)))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			notes.Record(fmt.Sprintf("job %s, process %d", j.id, i), "", strings.TrimSpace(line))
		}
	}
}
