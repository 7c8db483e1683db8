package mps

import (
	"context"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Program is NVIDIA's control daemon and its command line in one.
const Program = "nvidia-cuda-mps-control"

// patience is how long a control daemon may take to answer before it counts as
// wedged; it answers within 3 ms when it is well, and ECS, too, allows it 3 s.
const patience = 3 * time.Second

// Daemon is the control daemon of one GPU, running or not. Its methods may be
// called from several goroutines at once.
type Daemon struct {
	gpu      gpu.UUID
	dir      string
	program  string
	patience time.Duration
	// stranger has the commands given as another account; 0 is the agent's own.
	stranger uint32
	mu       sync.Mutex
	servers  []int // of the last survey
	// turn is held during a conversation: the daemon serves one connection at a time.
	turn chan struct{}
}

// NewDaemon names the control daemon of a GPU by its pipe directory (see
// PipeDirectory). Program is the path or name of nvidia-cuda-mps-control.
func NewDaemon(u gpu.UUID, pipeDirectory, program string) *Daemon {
	return &Daemon{
		gpu:      u,
		dir:      pipeDirectory,
		program:  program,
		patience: patience,
		turn:     make(chan struct{}, 1),
	}
}

// PipeDirectory is what a client needs in CUDA_MPS_PIPE_DIRECTORY.
func (d *Daemon) PipeDirectory() string { return d.dir }

// Command gives the daemon one command and returns its reply without the last
// line end. An empty reply is an answer: many commands have none.
func (d *Daemon) Command(ctx context.Context, line string) (string, error) {
	replies, _, err := d.converse(ctx, line)
	if err != nil {
		return "", err
	}
	return replies[0], nil
}

// Set gives the daemon its limits and reads them back. They act on MPS servers
// started from then on.
func (d *Daemon) Set(ctx context.Context, w Wanted) (Checked, error) {
	if err := d.valid(w); err != nil {
		return Checked{}, err
	}
	checked, err := d.check(ctx, w, setCommands(w))
	// A daemon that has just started listens on its privileged socket a moment
	// before the other one, but not soon enough for every command line: one that
	// misses it goes on at the other and is refused, even as root (550, 555).
	begin := time.Now()
	for FaultOf(err) == Refused && time.Since(begin) < d.patience {
		if backoff.Wait(ctx, setAgain) != nil {
			break
		}
		checked, err = d.check(ctx, w, setCommands(w))
	}
	return checked, err
}

// Check asks the daemon for its limits and compares them with the wanted ones.
// A nil error means: this process was alive and answered, and its limits were
// as wanted.
func (d *Daemon) Check(ctx context.Context, w Wanted) (Checked, error) {
	if err := d.valid(w); err != nil {
		return Checked{}, err
	}
	return d.check(ctx, w, nil)
}

// prove runs commands and then the read-backs and the servers in one
// conversation: every further one would cost the daemon four lines of log.
func (d *Daemon) check(ctx context.Context, w Wanted, commands []string) (Checked, error) {
	replies, servers, who, err := d.survey(ctx, append(commands, readBack...))
	if err != nil {
		return Checked{}, err
	}
	for i, reply := range replies[:len(commands)] {
		if isRefusal(reply) {
			return Checked{}, d.refused(reply, commands[i])
		}
	}
	back := []string{only(replies[len(commands)], limitLine), only(replies[len(commands)+1], percentageLine)}
	if differs := compare(w, back[0], back[1]); len(differs) > 0 {
		return Checked{}, d.wrongLimits(differs)
	}
	return Checked{
		PID: who.PID, Started: who.Started, At: time.Now(),
		Limit: back[0], ThreadPercentage: back[1],
		Servers: pidsOf(servers), States: servers, Stale: staleUnder(w, servers),
	}, nil
}

// StillRuns checks in microseconds and without the command line that the
// daemon of an earlier health check still runs: the owner of the control lock is the
// proven process, and it is not suspended. It says nothing about limits.
func (d *Daemon) StillRuns(p Checked) error {
	who, err := holder(d, p)
	if err != nil {
		return err
	}
	if who != p.Process() {
		return d.fault(Gone, nil, "process %d took the place of the proven process %d: wait for the next "+
			"checked", who.PID, p.PID)
	}
	return nil
}

func (d *Daemon) valid(w Wanted) error {
	if err := w.check(); err != nil {
		return d.fault(Invalid, err, "%v", err)
	}
	return nil
}

// Daemons are the control daemons of one node.
type Daemons struct {
	root    string
	program string
	runner  Runner
	// patience is that of each daemon.
	patience time.Duration
	mu       sync.Mutex
	known    map[gpu.UUID]*Daemon
}

// New names the control daemons of a node. Root is the directory above the
// pipe directories; program is the path or name of nvidia-cuda-mps-control.
func New(root, program string, runner Runner) *Daemons {
	return &Daemons{root: root, program: program, runner: runner, patience: patience, known: map[gpu.UUID]*Daemon{}}
}

// Daemon is the control daemon of a GPU, wanted or not. It fails only on a
// pipe directory that cannot be one.
func (s *Daemons) Daemon(u gpu.UUID) (*Daemon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.known[u]; ok {
		return d, nil
	}
	dir, err := PipeDirectory(s.root, u)
	if err != nil {
		return nil, err
	}
	d := NewDaemon(u, dir, s.program)
	d.patience = s.patience
	s.known[u] = d
	return d, nil
}
