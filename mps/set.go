package mps

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// atOnce is how many control daemons are worked on at a time.
const atOnce = 8

// startTimeout is how long a new daemon may take until it answers; 10 ms is usual.
const startTimeout = 10 * time.Second

// Set makes the node's control daemons the wanted ones: it starts those that
// are missing, adopts those that run (it never restarts one: jobs may depend
// on it), gives all of them their limits again, and stops those that are no
// longer wanted. It may be called as often as one likes.
//
// There is one result per GPU, in the order of their UUIDs. A fault of one
// GPU is in its result and does not hinder the others; the error is about the
// wish as a whole or about the runner.
func (s *Daemons) Set(ctx context.Context, wanted []Wanted) ([]Result, error) {
	byGPU := make(map[gpu.UUID]Wanted, len(wanted))
	for _, w := range wanted {
		if _, twice := byGPU[w.GPU]; twice {
			return nil, &Error{GPU: w.GPU, Fault: Invalid, Text: "it is wanted twice: name each GPU once"}
		}
		byGPU[w.GPU] = w
	}
	running, err := s.runner.Running(ctx)
	if err != nil {
		// What is wanted can still be had; what is not wanted is not known.
		err = fmt.Errorf("list the running control daemons: %w", err)
	}
	all := union(byGPU, running)
	results := make([]Result, len(all))
	forEach(len(all), atOnce, func(i int) {
		w, keep := byGPU[all[i]]
		if keep {
			results[i] = s.have(ctx, w)
		} else {
			results[i] = s.drop(ctx, all[i])
		}
	})
	return results, err
}

// union is every GPU of a wish and of what runs, in order.
func union(wanted map[gpu.UUID]Wanted, running []gpu.UUID) []gpu.UUID {
	all := slices.AppendSeq(slices.Clone(running), maps.Keys(wanted))
	slices.Sort(all)
	return slices.Compact(all)
}

// forEach calls do for 0 to n-1, at most limit at a time, and waits for all.
func forEach(n, limit int, do func(i int)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, limit)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			do(i)
			<-free
		})
	}
	wg.Wait()
}

// have makes one wanted daemon run with its limits.
func (s *Daemons) have(ctx context.Context, w Wanted) Result {
	r := Result{GPU: w.GPU, Action: Adopted}
	d, err := s.Daemon(w.GPU)
	if err == nil {
		err = d.valid(w)
	}
	if err != nil {
		r.Err = err
		return r
	}
	_, err = d.Alive()
	switch FaultOf(err) {
	case "":
	case NotRunning, Foreign:
		r.Action, r.Err = Started, s.start(ctx, d)
	default:
		r.Err = err
	}
	if r.Err == nil {
		r.Checked, r.Err = d.Set(ctx, w)
		r.Stale = r.Checked.Stale
	}
	return r
}

// start has the runner start a daemon and waits until it holds its lock. An admitted job may
// take the lock first. Then gpuslotd makes a new directory: no process has its files open.
func (s *Daemons) start(ctx context.Context, d *Daemon) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := exec.LookPath(d.program); err != nil {
		return d.fault(NotInstalled, err, "%s is not on this machine: %s", d.program, installHint)
	}
	if _, err := d.Alive(); FaultOf(err) != Foreign {
		if err := s.startOnce(ctx, d); FaultOf(err) != Foreign {
			return err
		}
	}
	if err := s.runner.Stop(ctx, d.gpu); err != nil {
		return err
	}
	return s.startOnce(ctx, d)
}

func (s *Daemons) startOnce(ctx context.Context, d *Daemon) error {
	if err := s.runner.Start(ctx, d.gpu); err != nil {
		return err
	}
	return d.await(ctx)
}

// await waits until the daemon runs. The first conversation then waits for its sockets.
func (d *Daemon) await(ctx context.Context) error {
	for {
		_, err := d.Alive()
		if FaultOf(err) != NotRunning {
			return err
		}
		if backoff.Wait(ctx, lookAgain) != nil {
			return err
		}
	}
}

// Restart ends a control daemon with its servers and starts it again with its
// limits. Clients die with their server: end them first (EndClients).
func (s *Daemons) Restart(ctx context.Context, w Wanted) Result {
	if r := s.drop(ctx, w.GPU); r.Err != nil {
		return r
	}
	return s.have(ctx, w)
}

// drop stops a daemon that is no longer wanted.
func (s *Daemons) drop(ctx context.Context, u gpu.UUID) Result {
	r := Result{GPU: u, Action: Stopped}
	d, err := s.Daemon(u)
	if err != nil {
		r.Err = err
		return r
	}
	if r.Err = s.runner.Stop(ctx, u); r.Err != nil {
		return r
	}
	if who, err := d.Alive(); FaultOf(err) != NotRunning {
		r.Err = d.fault(Foreign, err, "process %d still runs though it was stopped: end that process", who.PID)
	}
	return r
}
