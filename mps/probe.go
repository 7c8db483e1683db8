package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// probeGPU names the daemons of a probe in errors. There is no such GPU.
const probeGPU gpu.UUID = "GPU-00000000-0000-0000-0000-000000000000"

// probeTimeout bounds the start of one daemon of a probe; 5 ms is usual.
const probeTimeout = 5 * time.Second

// Probe tries what a control program can do: it starts daemons of its own in a
// directory of its own below run, asks them, and ends them. It uses no GPU, disturbs
// no other daemon, and takes some 20 ms. Program is the path or name of
// nvidia-cuda-mps-control; keep the result by that file's identity. One probe at a
// time may use a run directory. Device is one of this machine, empty if it has none: a control daemon
// that sees none of the GPUs there ends at once. Stranger is an account without jobs, or 0.
func Probe(ctx context.Context, program, run string, device gpu.UUID, stranger uint32) (Capabilities, error) {
	if _, err := exec.LookPath(program); err != nil {
		return Capabilities{}, &Error{Fault: NotInstalled, Err: err, Text: fmt.Sprintf("%s is not on this machine: "+
			"%s", program, installHint)}
	}
	root := filepath.Join(run, "probe")
	err := errors.Join(os.RemoveAll(root), makeParents(run)) // what a killed agent left
	if err == nil {
		err = os.Mkdir(root, 0o700)
	}
	if err != nil {
		return Capabilities{}, fmt.Errorf("probe %s: %w", program, err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	// The daemons die with the thread that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := probe{program: program, root: root, device: device, stranger: stranger}
	return p.run(ctx)
}

// probe is one Probe under way.
type probe struct {
	program  string
	root     string
	device   gpu.UUID
	stranger uint32
	started  int
}

func (p *probe) run(ctx context.Context) (Capabilities, error) {
	c := Capabilities{
		StaticPartitions: p.tryFlags(ctx, 2, "-S", "-f"),
		ProtocolV3:       p.tryFlags(ctx, 3, "-p", "3", "-f"),
		Version:          p.version(ctx),
	}
	multi, err := p.start(ctx, 2, "-multiuser-server", "-f")
	c.MultiUser = verdict(multi, err, "-multiuser-server -f")
	if err == nil {
		multi.end()
	}
	t, err := p.start(ctx, 2, "-f")
	if err != nil {
		return Capabilities{}, err
	}
	defer t.end()
	if err := c.ask(ctx, t); err != nil {
		return Capabilities{}, err
	}
	c.PrivilegeChecks = p.privilegeChecks(ctx, t)
	return c, nil
}

// ask fills in what a running daemon answers and leaves behind.
func (c *Capabilities) ask(ctx context.Context, t *probeDaemon) error {
	reply, err := t.d.Command(ctx, "get_server_status")
	if err != nil {
		return err
	}
	how := fmt.Sprintf("get_server_status: %s", printable(reply))
	c.ServerStatus = yes(how)
	if isRefusal(reply) {
		c.ServerStatus = no(how)
	}
	const file = "nvidia-cuda-mps-control.pid"
	c.PIDFile = no("no " + file)
	if _, err := os.Stat(filepath.Join(t.d.dir, file)); err == nil {
		c.PIDFile = yes(file)
	}
	return nil
}

// privilegeChecks changes a default as another account. Where it cannot become
// one, it looks for the refusal's words in the program. That account alone reaches the
// daemons of a probe: they are root's, have no limits, and serve one connection at a time.
func (p *probe) privilegeChecks(ctx context.Context, t *probeDaemon) Answer {
	const command = "set_default_active_thread_percentage 50"
	if os.Geteuid() == 0 && p.stranger != 0 && Admit(p.root, p.stranger) == nil {
		t.d.stranger = p.stranger
		t.d.patience = time.Second
		reply, err := t.d.Command(ctx, command)
		switch {
		case err == nil && isRefusal(reply):
			return yes(fmt.Sprintf("uid %d: %s", p.stranger, printable(reply)))
		case err == nil:
			return no(fmt.Sprintf("uid %d may %s: %s", p.stranger, command, printable(reply)))
		}
	}
	return p.refusalInProgram()
}

func (p *probe) refusalInProgram() Answer {
	path, err := exec.LookPath(p.program)
	if err != nil {
		return unknown(err.Error())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return unknown(err.Error())
	}
	const words = "settings can only be modified by the user" // "who started it" in 580, without "who" in 550
	if bytes.Contains(b, []byte(words)) {
		return yes("the program has the words of the refusal")
	}
	return unknown("no other account could be tried, and the program has not the known words")
}

// version is what -v prints. Older programs take it for client mode: the pipe
// directory is an empty one.
func (p *probe) version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, "-v")
	cmd.Env, cmd.Dir = clientEnvironment(filepath.Join(p.root, "none")), "/"
	cmd.WaitDelay = outputEnds
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return foreign.Clip(line)
}

// tryFlags answers whether a daemon starts with flags.
func (p *probe) tryFlags(ctx context.Context, protocol int, flags ...string) Answer {
	t, err := p.start(ctx, protocol, flags...)
	if err == nil {
		t.end()
	}
	return verdict(t, err, strings.Join(flags, " "))
}

// verdict reads what a start with a flag came to. A program that does not know
// the flag takes it for client mode (to 550) or prints its banner (555).
func verdict(t *probeDaemon, err error, flags string) Answer {
	if err == nil {
		return yes(flags + " starts")
	}
	how := fmt.Sprintf("%s: %s", flags, printable(t.words()))
	switch said := t.words(); {
	case strings.Contains(said, "Only root user may enable"):
		return yes(how)
	case strings.Contains(said, "Cannot find MPS control daemon"), strings.HasPrefix(said, "CUDA MPS Control for"):
		return no(how)
	}
	return unknown(how)
}

// probeDaemon is one daemon of a probe.
type probeDaemon struct {
	d      *Daemon
	cmd    *exec.Cmd
	stdin  *os.File // held open: a v3 daemon in the foreground ends with it
	exited chan struct{}
	out    lockedBuffer
}

// start starts a daemon in a directory of its own and waits until it holds its
// lock. The daemon is there even with an error.
func (p *probe) start(ctx context.Context, protocol int, flags ...string) (*probeDaemon, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p.started++
	dir := filepath.Join(p.root, fmt.Sprint(p.started))
	t := &probeDaemon{d: NewDaemon(probeGPU, dir, p.program), exited: make(chan struct{})}
	if len(dir) > MaxPipeDirectory {
		return t, t.d.fault(PathTooLong, nil, "the directory %s is too long: choose a shorter run directory", p.root)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return t, fmt.Errorf("probe %s: %w", p.program, err)
	}
	if err := t.begin(ctx, p.device, protocol, flags); err != nil {
		return t, fmt.Errorf("probe %s: %w", p.program, err)
	}
	if err := t.d.awaitLock(ctx, t.cmd.Process.Pid, t.exited, t.words); err != nil {
		t.end()
		return t, err
	}
	return t, nil
}

func (t *probeDaemon) begin(ctx context.Context, device gpu.UUID, protocol int, flags []string) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), t.d.program, flags...)
	cmd.Env = append(
		clientEnvironment(t.d.dir),
		"CUDA_MPS_LOG_DIRECTORY="+t.d.dir,
		"CUDA_VISIBLE_DEVICES="+string(device),
		fmt.Sprintf("CUDA_MPS_PROTOCOL_VERSION=%d", protocol),
	)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", theirs, &t.out, &t.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = outputEnds
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return errors.Join(err, ours.Close())
	}
	t.cmd, t.stdin = cmd, ours
	go func() {
		_ = cmd.Wait() // killed, or its words say more
		close(t.exited)
	}()
	return nil
}

// end kills it: it has no clients and no servers.
func (t *probeDaemon) end() {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	<-t.exited
	_ = t.stdin.Close()
}

// words are what it said so far.
func (t *probeDaemon) words() string { return strings.TrimSpace(t.out.String()) }

// lockedBuffer is a buffer that is read while a process writes into it.
type lockedBuffer struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Write(p[:min(len(p), maxReply-min(maxReply, b.kept.Len()))])
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept.String()
}
