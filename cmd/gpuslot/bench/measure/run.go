package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// copyGrace is how long a copy has between SIGTERM and SIGKILL.
const copyGrace = 5 * time.Second

// copies are the processes of one run.
type copies struct {
	commands []*exec.Cmd
	began    []time.Time
	ended    []time.Time
}

// warmUp runs the command once; a command that fails alone is not worth more.
func (m *runner) warmUp(ctx context.Context, s bench.Step) error {
	first := bench.Step{Mode: bench.Exclusive, Copies: 1, Profile: s.Profile}
	if s.Mode == bench.MIG {
		first.Mode, first.Devices = bench.MIG, s.Devices[:1]
	}
	r, err := m.run(ctx, first)
	if ctx.Err() != nil {
		err = nil // Measure says so
	} else if err == nil && len(r.Failures()) > 0 {
		return show.Hint(fmt.Errorf("the command failed alone (%s)%s", r.Jobs[0].Failed, lastLine(m.logOf(first, 0))),
			"bench runs a command that succeeds alone")
	}
	return err
}

// run is one run from the control daemon's start to its end.
func (m *runner) run(ctx context.Context, s bench.Step) (_ bench.Run, err error) {
	way, err := m.way(ctx, s)
	if err != nil {
		return bench.Run{}, err
	}
	defer func() { err = errors.Join(err, way.end(context.WithoutCancel(ctx))) }()
	c := &copies{}
	meter := bench.NewMeter(m.machine.GPU.UUID, c.copyOf)
	if err := m.look(ctx, meter); err != nil {
		return bench.Run{}, err
	}
	defer c.sweep()
	if err := c.start(ctx, m, s, way.environment, nil); err != nil {
		return bench.Run{}, err
	}
	if err := m.await(ctx, c, meter, way); err != nil {
		return bench.Run{}, err
	}
	r := c.result(s)
	meter.Into(&r)
	if len(r.Failures()) > 0 {
		return r, nil // it does not count, whatever way it took
	}
	return r, way.proven(context.WithoutCancel(ctx))
}

// look takes one reading.
func (m *runner) look(ctx context.Context, meter *bench.Meter) error {
	readings, err := m.usage.Read(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	meter.Add(readings)
	return nil
}

// await looks at the GPU, and at who came through MPS, until the last copy has
// ended.
func (m *runner) await(ctx context.Context, c *copies, meter *bench.Meter, way *way) error {
	all := make(chan struct{})
	go func() {
		defer close(all)
		c.wait()
	}()
	tick := time.NewTicker(m.options.Sample)
	defer tick.Stop()
	var err error
	for {
		select {
		case <-all:
			return errors.Join(err, m.look(ctx, meter))
		case <-tick.C:
			err = m.look(ctx, meter)
			way.watch(ctx)
		}
	}
}

// start starts all copies; each leads a session, which tells whose a process is.
// Connect, if any, changes what a copy has as its standard input and output.
func (c *copies) start(ctx context.Context, m *runner, s bench.Step, environment []string,
	connect func(*exec.Cmd) error) error {
	for i := range s.Copies {
		log, err := m.openLog(s, i)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, m.options.Command[0], m.options.Command[1:]...)
		cmd.Env = append(environment[:len(environment):len(environment)], "CUDA_VISIBLE_DEVICES="+m.device(s, i),
			fmt.Sprintf("GPUSLOT_BENCH_COPY=%d", i), fmt.Sprintf("GPUSLOT_BENCH_COPIES=%d", s.Copies))
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = copyGrace
		if connect != nil {
			err = connect(cmd)
		}
		if err == nil {
			err = cmd.Start()
		}
		_ = log.Close() // the copy has its own
		if err != nil {
			return fmt.Errorf("start the command: %w", err)
		}
		c.commands, c.began = append(c.commands, cmd), append(c.began, time.Now())
	}
	c.ended = make([]time.Time, len(c.commands))
	return nil
}

// device is what a copy sees.
func (m *runner) device(s bench.Step, i int) string {
	if s.Mode == bench.MIG {
		return string(s.Devices[i])
	}
	return string(m.machine.GPU.UUID)
}

func (m *runner) logOf(s bench.Step, i int) string {
	return filepath.Join(m.dir, "logs", fmt.Sprintf("%s%s-%d-repeat%d-copy%d.log", s.Mode,
		strings.ReplaceAll(s.Profile, ".", ""), s.Copies, s.Repeat, i))
}

func (m *runner) openLog(s bench.Step, i int) (*os.File, error) {
	path := m.logOf(s, i)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.Create(path)
}

// wait waits for all, each at its own time.
func (c *copies) wait() {
	done := make(chan struct{})
	for i := range c.commands {
		go func() {
			_ = c.commands[i].Wait() // how it ended is in its state
			c.ended[i] = time.Now()
			done <- struct{}{}
		}()
	}
	for range c.commands {
		<-done
	}
}

// result is what the processes themselves tell.
func (c *copies) result(s bench.Step) bench.Run {
	r := bench.Run{Mode: s.Mode, Copies: s.Copies, Repeat: s.Repeat, Profile: s.Profile,
		ThreadPercentage: s.ThreadPercentage}
	last := c.began[0]
	for i, cmd := range c.commands {
		job := bench.Job{Seconds: c.ended[i].Sub(c.began[i]).Seconds()}
		if !cmd.ProcessState.Success() {
			job.Failed = cmd.ProcessState.String()
		}
		r.Jobs = append(r.Jobs, job)
		if c.ended[i].After(last) {
			last = c.ended[i]
		}
	}
	r.Seconds = last.Sub(c.began[0]).Seconds()
	return r
}

// copyOf says which copy a process belongs to: the one whose session it is in.
// A process that makes itself a session of its own is not found.
func (c *copies) copyOf(pid int) (int, bool) {
	its, err := process.FS{}.Stat(pid)
	for i, cmd := range c.commands {
		if err == nil && cmd.Process.Pid == its.Session {
			return i, true
		}
	}
	return 0, false
}

// sweep kills what copies left behind, and copies that could not all start.
func (c *copies) sweep() {
	pids, _ := process.FS{}.PIDs()
	for _, pid := range pids {
		if _, ours := c.copyOf(pid); ours {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, cmd := range c.commands {
		if cmd.ProcessState == nil {
			_ = cmd.Wait()
		}
	}
}

// lastLine is what a copy said at last, ready to stand behind a sentence.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	last := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		if t := strings.TrimSpace(s.Text()); t != "" {
			last = t
		}
	}
	if last == "" {
		return ""
	}
	return ": " + last
}
