package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/bench"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// serverWait is how long a server may take until it serves: without persistence
// mode it initialises the GPU first.
const serverWait = 30 * time.Second

// way is how the copies of one run reach the GPU.
type way struct {
	// environment is that of each copy.
	environment []string
	// root is a directory of this run.
	root    string
	gpu     gpu.UUID
	daemons *mps.Daemons // nil without MPS
	began   time.Time
	// asked is when the daemon was last asked for its clients, most how many it
	// had at most.
	asked time.Time
	most  int
}

// way prepares a run: a control daemon of its own, or none. Without one, the
// pipe directory is an empty one: a daemon at the default place is not meant.
func (m *benchMachine) way(ctx context.Context, s bench.Step) (_ *way, err error) {
	w := &way{gpu: m.machine.GPU.UUID, environment: withoutCUDA(os.Environ()), began: time.Now()}
	if w.root, err = shortDirectory(); err != nil {
		return nil, err
	}
	pipes := w.root + "/none"
	if s.Mode == bench.MPS || s.Mode == bench.MPSCapped {
		if pipes, err = w.start(ctx, m, s); err != nil {
			return nil, errors.Join(err, w.end(context.WithoutCancel(ctx)))
		}
	}
	w.environment = append(w.environment, "CUDA_MPS_PIPE_DIRECTORY="+pipes)
	return w, nil
}

// shortDirectory is one below which a pipe directory fits into a socket address.
func shortDirectory() (string, error) {
	dir, err := os.MkdirTemp("", "gpuslot-")
	if err == nil && len(dir)+1+len("GPU-")+36 > mps.MaxPipeDirectory {
		_ = os.Remove(dir)
		return os.MkdirTemp("/tmp", "gpuslot-")
	}
	return dir, err
}

// withoutCUDA is an environment that says nothing of which GPU and how.
func withoutCUDA(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return strings.HasPrefix(v, "CUDA_MPS_") || strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(v, "NVIDIA_VISIBLE_DEVICES=")
	})
}

// start starts the control daemon and its server, so that no copy waits for
// them. The limit is the whole memory: none that binds.
func (w *way) start(ctx context.Context, m *benchMachine, s bench.Step) (pipes string, err error) {
	w.daemons = mps.New(w.root, m.program, mps.Processes{
		Root: w.root, Program: m.program, Logs: w.root, ServerPath: os.Getenv("PATH"), Environment: w.environment,
	})
	percentage := 100.0
	if s.ThreadPercentage != nil {
		percentage = *s.ThreadPercentage
	}
	results, err := w.daemons.Set(ctx, []mps.Wanted{{GPU: w.gpu, Limit: m.machine.GPU.Memory, ThreadPercentage: percentage}})
	if err != nil {
		return "", err
	}
	if err := results[0].Err; err != nil {
		return "", bench.NotCounted{Reason: fmt.Sprintf("MPS could not be used: %v", err)}
	}
	d, err := w.daemons.Daemon(w.gpu)
	if err != nil {
		return "", err
	}
	return d.PipeDirectory(), w.serve(ctx, d)
}

// serve waits for a server of this account.
func (w *way) serve(ctx context.Context, d *mps.Daemon) error {
	if err := d.StartServer(ctx, uint32(os.Getuid())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	for {
		servers, err := d.Servers(ctx)
		if err == nil && slices.ContainsFunc(servers, func(s mps.Server) bool { return s.Answers() && s.Status != mps.Initializing }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return bench.NotCounted{Reason: "no MPS server came up" + w.lastTrouble()}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lastTrouble is the log's last word on a failed start, behind a colon.
func (w *way) lastTrouble() string {
	text := ""
	for _, e := range w.events(context.Background()) {
		if e.Kind == mps.ServerBroken && e.Reason != "" {
			text = ": " + e.Reason
		}
	}
	return text
}

func (w *way) events(ctx context.Context) []mps.Event {
	lines, err := w.daemons.Log(ctx, w.gpu, w.began.Add(-time.Second))
	if err != nil {
		return nil
	}
	var out []mps.Event
	for _, l := range lines {
		if e, ok := mps.ParseEvent(l); ok {
			out = append(out, e)
		}
	}
	return out
}

// watch asks the daemon now and then for its clients, until it has told of some.
func (w *way) watch(ctx context.Context) {
	if w.daemons == nil || w.most > 0 || time.Since(w.asked) < time.Second/2 {
		return
	}
	w.asked = time.Now()
	d, err := w.daemons.Daemon(w.gpu)
	if err != nil {
		return
	}
	servers, err := d.Servers(ctx)
	for _, s := range servers {
		if err == nil {
			w.most += len(s.Clients)
		}
	}
}

// proven says that copies were clients: CUDA goes on without MPS where it finds
// no control daemon, as in a container that does not have the pipe directory. The
// log tells it of short runs, too, in words that may change with the driver.
func (w *way) proven(ctx context.Context) error {
	if w.daemons == nil || w.most > 0 {
		return nil
	}
	if slices.ContainsFunc(w.events(ctx), func(e mps.Event) bool { return e.Kind == mps.ClientAttached }) {
		return nil
	}
	return bench.NotCounted{Reason: "no process of the copies became an MPS client: the command must keep CUDA_MPS_PIPE_DIRECTORY, and a container needs that directory"}
}

// end stops the control daemon and removes the directory.
func (w *way) end(ctx context.Context) error {
	var err error
	if w.daemons != nil {
		_, err = w.daemons.Set(ctx, nil)
	}
	return errors.Join(err, os.RemoveAll(w.root))
}
