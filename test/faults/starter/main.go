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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/startd"
)

func main() {
	startd.Run()
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
	if err != nil {
		return err
	}
	tell(order.Event{PID: j.Process.Pid})
	go j.obey(io.MultiReader(d.Buffered(), os.Stdin))
	ended := j.end()
	tell(order.Event{Ended: &ended})
	return nil
}

// ask runs the hook and reads its answer.
func ask(o order.Order) (env []string, refused bool, err error) {
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
	for _, name := range e.Names() {
		value, _ := e.Lookup(name)
		env = append(env, name+"="+value)
	}
	return env, false, err
}

func as(uid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: uid} }

// job is the job that runs.
type job struct {
	*exec.Cmd
	input  io.Closer
	cgroup string
}

func start(o order.Order, env []string) (*job, error) {
	j := &job{Cmd: exec.Command(o.Command[0], o.Command[1:]...), cgroup: o.Cgroup}
	j.SysProcAttr = &syscall.SysProcAttr{Credential: as(o.UID), Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if o.Cgroup != "" {
		if err := os.MkdirAll(o.Cgroup, 0o755); err != nil {
			return nil, err
		}
		dir, err := os.Open(o.Cgroup)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		j.SysProcAttr.UseCgroupFD, j.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	j.Env, j.Dir = slices.Concat(env, o.Env, o.Forged), "/"
	out, err := os.Create(o.Output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	j.Stdout, j.Stderr = out, out
	if j.input, err = j.StdinPipe(); err != nil {
		return nil, err
	}
	return j, j.Start()
}

func (j *job) obey(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		switch lines.Text() {
		case order.Finish:
			j.input.Close()
		case order.Term:
			_ = j.Process.Signal(syscall.SIGTERM)
		case order.Kill:
			j.kill()
		}
	}
	j.kill()
}

// kill ends everything in the slot.
func (j *job) kill() {
	_ = syscall.Kill(-j.Process.Pid, syscall.SIGKILL)
	if j.cgroup != "" {
		_ = os.WriteFile(filepath.Join(j.cgroup, "cgroup.kill"), []byte("1"), 0) // since Linux 5.14
	}
}

// end waits for the job, and leaves nothing of it.
func (j *job) end() int {
	_ = j.Wait()
	j.kill()
	for range 100 {
		if j.cgroup == "" || os.Remove(j.cgroup) == nil {
			break
		}
		time.Sleep(5 * time.Millisecond) // what was killed is still there for a moment
	}
	return j.ProcessState.ExitCode()
}
