package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// serverWait is how long a server may take until it serves: without persistence
// mode it initialises the GPU first.
const serverWait = 30 * time.Second

// answerWait is how long a new control daemon may take until it answers.
const answerWait = 30 * time.Second

// way is how the copies of one run reach the GPU.
type way struct {
	// environment is that of each copy.
	environment []string
	// root is a directory of this run.
	root string
	gpu  gpu.UUID
	// daemon is the control daemon that processes started; nil without MPS.
	daemon    *mps.Daemon
	processes mps.Processes
	began     time.Time
	// asked is when the daemon was last asked for its clients, pause how long it is
	// let alone then, most how many it had at most.
	asked time.Time
	pause time.Duration
	most  int
}

// way prepares a run: a control daemon of its own, or none. Without one, the
// pipe directory is an empty one: a daemon at the default place is not meant.
func (m *runner) way(ctx context.Context, s bench.Step) (_ *way, err error) {
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
		return strings.HasPrefix(v, "CUDA_MPS_") || strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") ||
			strings.HasPrefix(v, "NVIDIA_VISIBLE_DEVICES=")
	})
}

// start starts the control daemon and its server, so that no copy waits for
// them. It has no memory limit: jobs under one that does not bind run alike.
func (w *way) start(ctx context.Context, m *runner, s bench.Step) (pipes string, err error) {
	pipes, err = mps.PipeDirectory(w.root, w.gpu)
	if err != nil {
		return "", err
	}
	w.processes = mps.Processes{Root: w.root, Program: m.program, Logs: w.root, ServerPath: os.Getenv("PATH"),
		Environment: w.environment}
	if err := w.processes.Start(ctx, w.gpu); err != nil {
		return "", bench.NotCounted{Reason: fmt.Sprintf("MPS could not be used: %v", err), MPS: true}
	}
	w.daemon = mps.NewDaemon(w.gpu, pipes, m.program)
	percentage := 100.0
	if s.ThreadPercentage != nil {
		percentage = *s.ThreadPercentage
	}
	if err := w.cap(ctx, percentage); err != nil {
		return "", err
	}
	return pipes, w.serve(ctx)
}

// cap sets the daemon's default percentage. It has its lock before it listens, so
// the first answers may fail.
func (w *way) cap(ctx context.Context, percentage float64) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	for {
		reply, err := w.daemon.Command(ctx, fmt.Sprintf("set_default_active_thread_percentage %g", percentage))
		if got, bad := strconv.ParseFloat(strings.TrimSpace(reply), 64); err == nil && bad == nil &&
			math.Abs(got-percentage) < 0.06 {
			return nil
		}
		select {
		case <-ctx.Done():
			return bench.NotCounted{Reason: fmt.Sprintf("the control daemon does not take %g %% of the threads: "+
				"it answers %q, %v", percentage, reply, err)}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serve waits for a server of this account.
func (w *way) serve(ctx context.Context) error {
	if err := w.daemon.StartServer(ctx, uint32(os.Getuid())); err != nil {
		return bench.NotCounted{Reason: fmt.Sprintf("no MPS server could be asked for: %v", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	for {
		servers, err := w.daemon.Servers(ctx)
		if err == nil && slices.ContainsFunc(servers,
			func(s mps.Server) bool { return s.Answers() && s.Status != mps.Initializing }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return bench.NotCounted{Reason: "no MPS server came up" + w.lastError(), MPS: true}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lastTrouble is the log's last word on a failed start, behind a colon.
func (w *way) lastError() string {
	text := ""
	for _, e := range w.events(context.Background()) {
		if e.Kind == mps.ServerBroken && e.Reason != "" {
			text = ": " + e.Reason
		}
	}
	return text
}

func (w *way) events(ctx context.Context) []mps.Event {
	lines, err := w.processes.Log(ctx, w.gpu, w.began.Add(-time.Second))
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

// watch asks the daemon for its clients until it has told of some, soon at first,
// for a run may be short, then now and then.
func (w *way) watch(ctx context.Context) {
	if w.daemon == nil || w.most > 0 || time.Since(w.asked) < w.pause {
		return
	}
	w.asked, w.pause = time.Now(), min(max(2*w.pause, 50*time.Millisecond), time.Second/2)
	servers, err := w.daemon.Servers(ctx)
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
	if w.daemon == nil || w.most > 0 {
		return nil
	}
	if slices.ContainsFunc(w.events(ctx), func(e mps.Event) bool { return e.Kind == mps.ClientAttached }) {
		return nil
	}
	return bench.NotCounted{Reason: "no process of the copies became an MPS client: " +
		"the command must keep CUDA_MPS_PIPE_DIRECTORY, and a container needs that directory"}
}

// end stops the control daemon and removes the directory.
func (w *way) end(ctx context.Context) error {
	var err error
	if w.daemon != nil {
		err = w.processes.Stop(ctx, w.gpu)
	}
	return errors.Join(err, os.RemoveAll(w.root))
}
