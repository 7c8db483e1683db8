// Command starter stands in for condor_starter in the fault tests: it is built
// under that name, asks the hook as HTCondor's starter does, and runs the job
// with the environment that came back, in a cgroup of the slot's name.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/test/faults/order"
)

func main() {
	// The parent-death signal of a job is tied to the thread that started it.
	runtime.LockOSThread()
	if err := run(); err != nil {
		tell(order.Event{Failed: err.Error()})
		os.Exit(1)
	}
}

func tell(e order.Event) { _ = json.NewEncoder(os.Stdout).Encode(e) }

func run() error {
	var o order.Order
	d := json.NewDecoder(os.Stdin)
	if err := d.Decode(&o); err != nil {
		return err
	}
	env, refused, err := ask(o)
	if err != nil || refused {
		return err
	}
	j, err := start(o, env)
	defer j.kill()
	if err != nil {
		return err
	}
	tell(order.Event{PIDs: j.pids(), Env: env})
	go j.obey(io.MultiReader(d.Buffered(), os.Stdin))
	ended := j.wait()
	if o.Cgroup != "" {
		_ = os.Remove(o.Cgroup)
	}
	tell(order.Event{Ended: ended})
	return nil
}

// ask runs the hook and reads its answer.
func ask(o order.Order) (env map[string]string, refused bool, err error) {
	var out, stderr bytes.Buffer
	cmd := exec.Command(o.Hook[0], o.Hook[1:]...)
	cmd.Env, cmd.Dir = o.HookEnv, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(o.JobAd), &out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as(o.UID), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return nil, false, fmt.Errorf("the hook: %w: %s%s", err, stderr.String(), out.String())
	}
	ad, err := classad.Parse(out.String())
	if err != nil {
		return nil, false, err
	}
	if code, ok := ad.Int("HookStatusCode"); ok {
		message, _ := ad.String("HookStatusMessage")
		tell(order.Event{Code: code, Message: message})
		return nil, true, nil
	}
	text, _ := ad.String("Environment")
	e, err := condor.ParseEnvironment(text)
	env = map[string]string{}
	for _, name := range e.Names() {
		env[name], _ = e.Lookup(name)
	}
	return env, false, err
}

func as(uid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: uid} }

// job is the processes that run.
type job struct {
	processes []*exec.Cmd
	inputs    []io.Closer
}

func start(o order.Order, env map[string]string) (*job, error) {
	j := &job{}
	attr := &syscall.SysProcAttr{Credential: as(o.UID), Pdeathsig: syscall.SIGKILL}
	if o.Cgroup != "" {
		if err := os.MkdirAll(o.Cgroup, 0o755); err != nil {
			return j, err
		}
		dir, err := os.Open(o.Cgroup)
		if err != nil {
			return j, err
		}
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	vars := append([]string{}, o.Env...)
	for name, value := range env {
		vars = append(vars, name+"="+value)
	}
	for i, args := range o.Processes {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = append(vars, o.Forged...), "/", attr
		out, err := os.Create(filepath.Join(o.Output, strconv.Itoa(i)))
		if err != nil {
			return j, err
		}
		cmd.Stdout, cmd.Stderr = out, out
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		out.Close()
		if err != nil {
			return j, err
		}
		j.processes, j.inputs = append(j.processes, cmd), append(j.inputs, in)
	}
	return j, nil
}

func (j *job) pids() []int {
	var out []int
	for _, p := range j.processes {
		out = append(out, p.Process.Pid)
	}
	return out
}

func (j *job) obey(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		switch lines.Text() {
		case order.Finish:
			for _, in := range j.inputs {
				in.Close()
			}
		case order.Term:
			j.signal(syscall.SIGTERM)
		case order.Kill:
			j.kill()
		}
	}
	j.kill()
}

func (j *job) kill() { j.signal(syscall.SIGKILL) }

func (j *job) signal(s syscall.Signal) {
	for _, p := range j.processes {
		_ = p.Process.Signal(s)
	}
}

func (j *job) wait() []int {
	out := []int{}
	for _, p := range j.processes {
		_ = p.Wait()
		out = append(out, p.ProcessState.ExitCode())
	}
	return out
}
