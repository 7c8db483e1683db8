package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// account is the jobs': no other program on a machine has it.
const account = 64101

// job is a job below a starter of its own.
type job struct {
	order.Slot
	*order.Started
}

// run waits for the GPU to take jobs, starts one whose processes do what the
// words say, and waits for the hook's answer. A job of the trial before that was
// killed while it computed is a fault: the GPU is closed until its clients are gone.
func (n *Node) run(ctx context.Context, budget int64, processes ...string) (*job, error) {
	if err := n.await(ctx, time.Minute, func(g api.StatusGPU) bool { return g.Accept }); err != nil {
		return nil, err
	}
	n.number++
	name := fmt.Sprintf("slot1_%d", n.number)
	j := &job{Slot: order.Slot{
		Name: name, Job: fmt.Sprintf("1.%d", n.number), Owner: "user", UID: account,
		GPU: string(n.GPU.UUID), Budget: budget, Dir: n.path("out", name),
	}}
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chown(j.Dir, account, account); err != nil {
		return nil, err
	}
	n.advertise(append(n.jobs, j)) // the startd knows of a slot before its starter runs
	var err error
	if j.Started, err = order.Start(n.path("prog/condor_starter"), j.Name, n.orderOf(j, processes), &n.log); err != nil {
		return nil, err
	}
	n.jobs = append(n.jobs, j)
	return j, j.Answer(ctx)
}

func (n *Node) orderOf(j *job, processes []string) order.Order {
	o := j.Order(n.path("prog/gpuslot-condor"), n.socket())
	o.Cgroup = j.Cgroup(n.cgroup)
	o.Env = append(o.Env, "PATH=/usr/bin:/bin")
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			o.Env = append(o.Env, name+"="+value)
		}
	}
	script := "exec 3<&0\n"
	for i, words := range processes {
		script += fmt.Sprintf("%s %s <&3 >%s/%d &\n", n.path("prog/gpujob"), words, j.Dir, i)
	}
	o.Command = []string{n.path("prog/gpuslot-condor"), "supervise", "--socket", n.socket(), "--", "/bin/sh", "-c", script + "wait"}
	return o
}

// advertise writes what condor_status tells: one ad for each dynamic slot.
func (n *Node) advertise(jobs []*job) {
	var ads []string
	for _, j := range jobs {
		if j.Started == nil || !j.Over() {
			ads = append(ads, j.Ad())
		}
	}
	temp := n.path("slots.new")
	if os.WriteFile(temp, []byte("["+strings.Join(ads, ",\n")+"]\n"), 0o644) == nil {
		_ = os.Rename(temp, n.path("slots"))
	}
}

// lines are what one of its processes told.
func (j *job) lines(process int) (out []truth.Line) {
	b, err := os.ReadFile(filepath.Join(j.Dir, fmt.Sprint(process)))
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
	return truth.Last(j.lines(process), step)
}

// await waits until a process told a step, some time.
func (j *job) await(ctx context.Context, process int, step string, most time.Duration) (truth.Line, error) {
	for deadline := time.Now().Add(most); ; {
		over := j.Over()
		if l, ok := j.told(process, step); ok {
			return l, nil
		}
		if over || time.Now().After(deadline) || ctx.Err() != nil {
			return truth.Line{}, fmt.Errorf("process %d of job %s does not come to %q (over: %v): %+v", process, j.Job, step, over, j.lines(process))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// end lets a job end by itself, or else kills it.
func (j *job) end() {
	j.Say(order.Finish)
	if !j.OverWithin(time.Second) {
		j.Kill()
	}
}

// endJobs ends all that run.
func (n *Node) endJobs() {
	for _, j := range n.jobs {
		j.end()
	}
	n.jobs = nil
	n.advertise(nil)
}

// keep writes down what the processes of a job told.
func (j *job) keep(notes *truth.Notes, processes int) {
	for i := range processes {
		b, err := os.ReadFile(filepath.Join(j.Dir, fmt.Sprint(i)))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			notes.Record(fmt.Sprintf("job %s, process %d", j.Job, i), "", strings.TrimSpace(line))
		}
	}
}
