package truth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Lab is one GPU and the programs to try it with.
type Lab struct {
	// GPU by its UUID, with its Name, the Driver's version and whether all of it
	// is simulated.
	GPU       gpu.UUID
	Name      string
	Driver    string
	CUDA      string
	Simulated bool
	// Programs holds gpujob and gpusee.
	Programs string
	// Control is the path or name of nvidia-cuda-mps-control.
	Control string
	// Dir is a short directory for pipe directories, open to all accounts.
	Dir string

	jobs    []*Job
	daemons []*Daemon
	count   int
}

// Daemon is a control daemon of a trial.
type Daemon struct {
	*mps.Daemon
	lab    *Lab
	runner mps.Processes
	notes  *Notes
	began  time.Time
}

// environment is this process's without anything that says which GPU and how.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CUDA_MPS_") || strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(v, "NVIDIA_VISIBLE_DEVICES=")
	})
	return append(env, more...)
}

// Daemon starts a control daemon with a directory of its own, open to all.
func (l *Lab) Daemon(ctx context.Context, n *Notes, flags ...string) (*Daemon, error) {
	l.count++
	root := filepath.Join(l.Dir, fmt.Sprintf("d%d", l.count))
	if err := os.Mkdir(root, 0o755); err != nil {
		return nil, err
	}
	return l.daemonIn(ctx, n, root, flags...)
}

func (l *Lab) daemonIn(ctx context.Context, n *Notes, root string, flags ...string) (*Daemon, error) {
	dir, err := mps.PipeDirectory(root, l.GPU)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		Daemon: mps.NewDaemon(l.GPU, dir, l.Control), lab: l, notes: n, began: time.Now(),
		runner: mps.Processes{Root: root, Program: l.Control, Logs: root, ServerPath: os.Getenv("PATH"), Environment: environment(), Flags: flags},
	}
	if err := d.runner.Start(ctx, l.GPU); err != nil {
		return nil, err
	}
	l.daemons = append(l.daemons, d)
	// gpuslot's own directories are closed to other accounts; those of a control
	// daemon that gpuslot does not prepare have mode 0777, and the trials are of that.
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, err
	}
	// It has its lock before it listens, and a client that finds no socket does without MPS.
	if err := until(ctx, 5*time.Second, func() bool { _, err := d.Command(ctx, "get_default_active_thread_percentage"); return err == nil }); err != nil {
		return nil, fmt.Errorf("the control daemon does not answer: %w", err)
	}
	n.Record("control", "started "+strings.Join(flags, " "), "")
	return d, nil
}

// Tell gives a command and writes the reply down.
func (d *Daemon) Tell(ctx context.Context, line string) (string, error) {
	reply, err := d.Command(ctx, line)
	said := reply
	if err != nil {
		said = "error: " + err.Error()
	}
	d.notes.Record("control", line, said)
	return reply, err
}

// TellAs gives a command as another account, with the reply of both streams.
func (d *Daemon) TellAs(ctx context.Context, uid uint32, line string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.lab.Control)
	cmd.Env, cmd.WaitDelay = environment("CUDA_MPS_PIPE_DIRECTORY="+d.PipeDirectory()), time.Second
	cmd.Stdin = strings.NewReader(line + "\n")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		said += " [" + err.Error() + "]"
	}
	d.notes.Record(fmt.Sprintf("control as uid %d", uid), line, said)
	return strings.TrimSpace(string(out))
}

// Stop ends the daemon with its servers.
func (d *Daemon) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d.writeLog(ctx)
	return d.runner.Stop(ctx, d.lab.GPU)
}

// writeLog keeps what the daemon and its servers wrote.
func (d *Daemon) writeLog(ctx context.Context) {
	for _, line := range d.Log(ctx) {
		d.notes.Record("log", "", line)
	}
}

// Log is what they wrote since the start.
func (d *Daemon) Log(ctx context.Context) []string {
	lines, err := d.runner.Log(ctx, d.lab.GPU, d.began.Add(-time.Second))
	if err != nil {
		return nil
	}
	return lines
}

// Server waits until a server of an account serves, and gives it.
func (d *Daemon) Server(ctx context.Context, uid uint32) (mps.Server, error) {
	if err := d.StartServer(ctx, uid); err != nil {
		return mps.Server{}, err
	}
	var found mps.Server
	var last error
	err := until(ctx, 30*time.Second, func() bool {
		servers, err := d.Servers(ctx)
		last = err
		i := slices.IndexFunc(servers, func(s mps.Server) bool { return s.Answers() && s.Status != mps.Initializing })
		if err == nil && i >= 0 {
			found = servers[i]
		}
		return err == nil && i >= 0
	})
	if err != nil {
		return found, fmt.Errorf("no MPS server came up: %w", errors.Join(err, last))
	}
	d.notes.Record("control", "server", fmt.Sprintf("%d %s", found.PID, found.Status))
	return found, nil
}

// until waits for something to be so, some time.
func until(ctx context.Context, most time.Duration, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			return errors.New("it does not come to that in time")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Look is what gpusee tells.
type Look struct {
	TotalMiB  *int64 `json:"total_mib"`
	UsedMiB   *int64 `json:"used_mib"`
	EnergyMJ  *int64 `json:"energy_mj"`
	Mode      *int   `json:"compute_mode"`
	Compute   []Seen `json:"compute"`
	MPS       []Seen `json:"mps"`
	Samples   []Seen `json:"samples"`
	ErrorText string `json:"error"`
}

// Seen is a process in one of NVML's lists.
type Seen struct {
	PID   int    `json:"pid"`
	Bytes *int64 `json:"bytes"`
	SM    int    `json:"sm"`
}

// See looks at the GPU so often, so many milliseconds apart.
func (l *Lab) See(ctx context.Context, n *Notes, looks, ms int) ([]Look, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(looks*ms)*time.Millisecond+20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(l.Programs, "gpusee"), string(l.GPU), fmt.Sprint(looks), fmt.Sprint(ms))
	cmd.Env, cmd.WaitDelay = environment(), time.Second
	out, err := cmd.Output()
	var all []Look
	for line := range strings.Lines(string(out)) {
		n.Record("nvml", "", strings.TrimSpace(line))
		var k Look
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			return all, fmt.Errorf("gpusee: %w", err)
		}
		all = append(all, k)
	}
	if err != nil {
		return all, fmt.Errorf("gpusee: %w", err)
	}
	return all, nil
}

// listed finds a process in a list.
func listed(in []Seen, pid int) (Seen, bool) {
	i := slices.IndexFunc(in, func(s Seen) bool { return s.PID == pid })
	if i < 0 {
		return Seen{}, false
	}
	return in[i], true
}

// sweep ends everything that was started since the last: jobs, then daemons, all
// at once.
func (l *Lab) sweep() error {
	err := endAll(l.jobs, 3*time.Second, 5*time.Second) // by themselves; by the kernel
	errs := make([]error, len(l.daemons))
	var all sync.WaitGroup
	for i, d := range l.daemons {
		all.Go(func() { errs[i] = d.Stop() })
	}
	all.Wait()
	l.jobs, l.daemons = nil, nil
	return errors.Join(append(errs, err)...)
}

// step is a part of a trial.
type step struct {
	name string
	try  func() error
}

// each tries steps one after the other, each on a GPU that no other process uses. One
// that goes wrong does not take the others along, unless it takes all the time.
func (l *Lab) each(ctx context.Context, steps []step) error {
	var errs []error
	for _, s := range steps {
		err := ctx.Err()
		if err == nil {
			err = errors.Join(s.try(), l.sweep())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}
