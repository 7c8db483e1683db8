package cuda

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Client is a running client, seen from its parent.
type Client struct {
	cmd   *exec.Cmd
	stdin io.Closer
	// tried is closed when the client holds still or has ended, ended when it has.
	tried, ended chan struct{}

	mu     sync.Mutex
	report Report
}

// Start runs program as a client; its arguments are args and then those that
// Main reads. Program may be /proc/self/exe, which another account can run
// wherever the file lies. The client ends with its parent, and with the context.
func Start(ctx context.Context, program string, args []string, o Order) (*Client, error) {
	c := &Client{tried: make(chan struct{}), ended: make(chan struct{})}
	c.cmd = exec.CommandContext(ctx, program, append(args[:len(args):len(args)], arguments(o)...)...)
	c.cmd.Dir, c.cmd.Env = "/", append([]string{}, o.Environment...)
	if o.Account != nil {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: process.Untraced(o.Account.UID, o.Account.GID)}
	}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the CUDA client: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the CUDA client: %w", err), in.Close())
	}
	c.stdin = in
	go c.follow(out)
	return c, nil
}

func arguments(o Order) []string {
	return []string{strconv.FormatInt(int64(o.Below), 10), strconv.FormatInt(int64(o.Above), 10)}
}

// most bounds what is believed of a client, which is a process of another account.
const most = 64 << 10

// follow reads what the client says until it ends.
func (c *Client) follow(out io.Reader) {
	tried := sync.OnceFunc(func() { close(c.tried) })
	for s := bufio.NewScanner(io.LimitReader(out, most)); s.Scan(); {
		if c.note(s.Bytes()) {
			tried()
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = c.cmd.Wait() // how it ended is in the process's state
	c.mu.Lock()
	c.report.Ended = c.cmd.ProcessState.String()
	c.mu.Unlock()
	close(c.ended)
	tried()
}

// note keeps one line and says whether everything was tried. A line that is
// none is not the client's.
func (c *Client) note(text []byte) (tried bool) {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = c.report.with(l)
	return c.report.Tried
}

// PID is the client's process.
func (c *Client) PID() int { return c.cmd.Process.Pid }

// Tried is closed when the client holds still or has ended.
func (c *Client) Tried() <-chan struct{} { return c.tried }

// Report is what is known up to now.
func (c *Client) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// leaving is how long a client that holds still may take to end by itself.
const leaving = 5 * time.Second

// End lets a client leave that holds still, and kills any other: in a call that
// does not return it has no work in flight. It returns when the process is gone,
// or false if the kernel does not let it go within a few seconds.
func (c *Client) End() (gone bool) {
	_ = c.stdin.Close()
	if !c.Report().Tried || !c.endsWithin(leaving) {
		_ = c.cmd.Process.Kill()
	}
	return c.endsWithin(leaving)
}

func (c *Client) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.ended:
		return true
	case <-t.C:
		return false
	}
}

// parse reads what arguments wrote.
func parse(args []string) (below, above gpu.MiB, err error) {
	if len(args) != 2 {
		return 0, 0, fmt.Errorf("want two amounts of MiB, not %q", args)
	}
	b, errB := strconv.ParseInt(args[0], 10, 32)
	a, errA := strconv.ParseInt(args[1], 10, 32)
	if errB != nil || errA != nil || b < 1 || a < 1 {
		return 0, 0, fmt.Errorf("want two amounts of MiB, not %q", args)
	}
	return gpu.MiB(b), gpu.MiB(a), nil
}
