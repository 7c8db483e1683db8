package truth

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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Line is what gpujob tells of one step.
type Line struct {
	Step   string  `json:"step"`
	Code   int     `json:"code"`
	Result string  `json:"result"`
	MS     float64 `json:"ms"`
	PID    int     `json:"pid"`
	CUDA   int     `json:"cuda"`
	// MiB, Free and Total are amounts of memory, Ended the result that ended fill.
	MiB       *int `json:"mib"`
	Free      *int `json:"free_mib"`
	Total     *int `json:"total_mib"`
	Ended     *int `json:"ended_code"`
	SMs       *int `json:"multiprocessors"`
	Devices   *int `json:"devices"`
	Times     int  `json:"times"`
	Blocks    int  `json:"blocks"`
	Places    int  `json:"places"`
	Kernel    string
	Operation float64 `json:"flop"`
}

// Job is a running gpujob.
type Job struct {
	name  string
	cmd   *exec.Cmd
	in    io.Closer
	notes *Notes
	mu    sync.Mutex
	lines []Line
	ended chan struct{}
}

// Order is how a job is started.
type Order struct {
	// Name is that of the job in the records.
	Name string
	// Daemon to be a client of; nil for none.
	Daemon *Daemon
	// Environment beside it.
	Environment []string
	// UID is the account to run as, if not 0; root only.
	UID uint32
	// Under is a command that runs the job, such as unshare.
	Under []string
	// Words for gpujob.
	Words string
}

// Start starts a job. Its standard input stays open until End.
func (l *Lab) Start(ctx context.Context, n *Notes, o Order) (*Job, error) {
	pipes := filepath.Join(l.Dir, "none")
	if o.Daemon != nil {
		pipes = o.Daemon.PipeDirectory()
	}
	args := append(append([]string{}, o.Under...), filepath.Join(l.Programs, "gpujob"))
	args = append(args, strings.Fields(o.Words)...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Env = append(environment("CUDA_VISIBLE_DEVICES="+string(l.GPU), "CUDA_MPS_PIPE_DIRECTORY="+pipes), o.Environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.UID, Gid: o.UID}
	}
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.Record(o.Name, strings.TrimSpace(strings.Join(o.Environment, " ")+" "+o.Words), fmt.Sprintf("pid %d", cmd.Process.Pid))
	j := &Job{name: o.Name, cmd: cmd, in: in, notes: n, ended: make(chan struct{})}
	l.jobs = append(l.jobs, j)
	go j.read(out)
	return j, nil
}

func (j *Job) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		j.notes.Record(j.name, "", s.Text())
		var line Line
		if json.Unmarshal(s.Bytes(), &line) == nil && line.Step != "" {
			j.mu.Lock()
			j.lines = append(j.lines, line)
			j.mu.Unlock()
		}
	}
	_ = j.cmd.Wait()
	j.notes.Record(j.name, "", j.cmd.ProcessState.String())
	close(j.ended)
}

// Line is the last line of a step, if it was told.
func (j *Job) Line(step string) (Line, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Last(j.lines, step)
}

// Last is the last line of a step, if it was told.
func Last(lines []Line, step string) (Line, bool) {
	for _, l := range slices.Backward(lines) {
		if strings.HasPrefix(l.Step, step) {
			return l, true
		}
	}
	return Line{}, false
}

// Await waits for a step to be told, some time.
func (j *Job) Await(ctx context.Context, step string, most time.Duration) (Line, error) {
	var line Line
	err := until(ctx, most, func() (ok bool) {
		line, ok = j.Line(step)
		return ok || j.gone()
	})
	if _, ok := j.Line(step); err == nil && !ok {
		err = errors.New("it ended before")
	}
	if err != nil {
		return line, fmt.Errorf("job %s, step %q: %w", j.name, step, err)
	}
	return line, nil
}

// Must waits as Await does, for a step without which a trial tells nothing.
func (j *Job) Must(ctx context.Context, step string) error {
	line, err := j.Await(ctx, step, 20*time.Second)
	if err == nil && line.Code != 0 {
		err = fmt.Errorf("job %s, step %q: %s", j.name, line.Step, line.Result)
	}
	return err
}

func (j *Job) gone() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// End closes its input and waits until it is gone, some time.
func (j *Job) End(ctx context.Context) error {
	_ = j.in.Close()
	return until(ctx, 10*time.Second, j.gone)
}

// Kill is a SIGKILL to it and what runs under it.
func (j *Job) Kill() { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) }

// endAll ends jobs: each by itself if it does, which harms no client, else by a
// signal. It names those that not even that ends: a process that hangs in the
// driver must not hold up all that comes after it.
func endAll(jobs []*Job, endWait, killWait time.Duration) error {
	gone := func() bool {
		return !slices.ContainsFunc(jobs, func(j *Job) bool { return !j.gone() })
	}
	for _, j := range jobs {
		_ = j.in.Close()
	}
	if until(context.Background(), endWait, gone) == nil {
		return nil
	}
	for _, j := range jobs {
		if !j.gone() {
			j.Kill()
		}
	}
	if until(context.Background(), killWait, gone) == nil {
		return nil
	}
	var errs []error
	for _, j := range jobs {
		if !j.gone() {
			errs = append(errs, fmt.Errorf("process %d of job %s survives SIGKILL", j.cmd.Process.Pid, j.name))
		}
	}
	return errors.Join(errs...)
}

// Do runs a job to its end.
func (l *Lab) Do(ctx context.Context, n *Notes, o Order) (*Job, error) {
	j, err := l.Start(ctx, n, o)
	if err != nil {
		return nil, err
	}
	_ = j.in.Close()
	if err := until(ctx, 30*time.Second, j.gone); err != nil {
		return j, fmt.Errorf("job %s: %w", o.Name, err)
	}
	return j, nil
}

// fill finds out how much a client can allocate, and sets <name>_mib, and
// <name>_free_mib as cuMemGetInfo tells it. A context that does not fit leaves 0.
func (l *Lab) fill(ctx context.Context, n *Notes, name string, o Order) error {
	o.Name, o.Words = name, "info fill 32"
	j, err := l.Do(ctx, n, o)
	if err != nil {
		return err
	}
	if c, ok := j.Line("cuInit"); ok {
		n.Set(name+"_init_code", c.Code)
	}
	if c, ok := j.Line("context"); ok {
		n.Set(name+"_context_code", c.Code)
		if c.Code == outOfMemory {
			n.Set(name+"_mib", 0)
		}
	}
	if i, ok := j.Line("info"); ok && i.Free != nil {
		n.Set(name+"_free_mib", *i.Free)
		n.Set(name+"_total_mib", *i.Total)
	}
	if f, ok := j.Line("fill"); ok && f.MiB != nil {
		n.Set(name+"_mib", *f.MiB)
		n.Set(name+"_ended_code", *f.Ended)
	}
	return nil
}

// outOfMemory and others are results of the CUDA Driver API.
const (
	outOfMemory      = 2
	illegalAddress   = 700
	assertion        = 710
	serverNotReady   = 807
	maxClients       = 808
	clientTerminated = 810
)
