// Command starter stands in for condor_starter in the bench: it is built under
// that name, and starts programs as HTCondor's starter starts a hook. It runs
// the programs of its standard input in turn, so that all of them meet the
// same noise, and prints how long each took.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/test/bench/order"
	"github.com/gpuslot/gpuslot/test/startd"
)

func main() {
	startd.Run()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "starter:", err)
		os.Exit(1)
	}
}

func run() error {
	var o order.Order
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&o); err != nil {
		return err
	}
	for o.Gate != "" {
		if _, err := os.Stat(o.Gate); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	report := order.Report{Times: map[string][]time.Duration{}, CPU: map[string][]time.Duration{}}
	for range o.Rounds {
		for _, p := range o.Programs {
			took, used, err := once(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			report.Times[p.Name] = append(report.Times[p.Name], took)
			report.CPU[p.Name] = append(report.CPU[p.Name], used)
		}
	}
	job, err := start(o.Job)
	defer job.end()
	for _, c := range job {
		report.PIDs = append(report.PIDs, c.Process.Pid)
	}
	if err := errors.Join(err, json.NewEncoder(os.Stdout).Encode(report)); err != nil || len(job) == 0 {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the bench closes it
	return err
}

// processes are those of a job.
type processes []*exec.Cmd

func start(job [][]string) (started processes, err error) {
	for _, args := range job {
		c := exec.Command(args[0], args[1:]...)
		if err := c.Start(); err != nil {
			return started, err
		}
		started = append(started, c)
	}
	return started, nil
}

func (ps processes) end() {
	for _, c := range ps {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	}
}

func once(p order.Program) (took, cpu time.Duration, err error) {
	var out strings.Builder
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env = p.Env
	cmd.Stdin = strings.NewReader(p.Stdin)
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	err = cmd.Run()
	took = time.Since(begin)
	if err == nil && !strings.Contains(out.String(), p.Want) {
		err = fmt.Errorf("output has no %q", p.Want)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, out.String())
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
