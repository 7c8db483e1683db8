package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options says what a node is made of. The zero value is a node with systemd and HTCondor and nothing else.
type Options struct {
	// Name is the node's host name, and begins the names of its cgroup and state directory. Two nodes may
	// share it. Default: "node".
	Name string
	// Binds are host files and directories visible inside, read-only unless Writable.
	Binds []Bind
	// Files are in place before systemd starts, by absolute path inside: units, HTCondor configuration, data.
	// They win over the image and over the base configuration in /etc/condor/config.d/10-node.config.
	Files map[string]File
	// Systemd is a Debian suite whose systemd is PID 1, below the HTCondor of the newer image: "bookworm" has
	// 252. Default: the image's own.
	Systemd string
	// Suite is a Debian suite that the whole image is of, without HTCondor. Default: one that has HTCondor.
	Suite string
	// Progress takes one line for each long step. Default: none.
	Progress io.Writer
}

// Bind makes a host path visible inside the node.
type Bind struct {
	Host     string // absolute, on the host
	Guest    string // absolute, inside; made when it does not exist
	Writable bool
}

// File is a file inside the node.
type File struct {
	Data  string
	Mode  fs.FileMode // default: 0644
	Owner string      // user name, whose own group comes with it; default: root
}

// Node is a booted node. Its methods may be called from several goroutines at once.
type Node struct {
	name   string
	state  *state
	cgroup *cgroup
	leader int
	up     *launcher
	seq    atomic.Int64
	stop   sync.Once
	stopOK error
}

// Name is the host name inside. Slots are called slot1@<name>.
func (n *Node) Name() string { return n.name }

// Leader is the host's PID of the node's PID 1. Its /proc/<pid>/root is the node's root directory.
func (n *Node) Leader() int { return n.leader }

// Cgroup is the host's path of the cgroup that is the root of the node's own tree.
func (n *Node) Cgroup() string { return n.cgroup.guest() }

// Patience is how long a test waits for what a node does in seconds. It only ends
// a broken run: a machine under load may be slow, and that is no failure.
const Patience = 5 * time.Minute

// Boot builds the image if need be, boots a node and waits until systemd has started everything. HTCondor is
// installed and configured but not started: see StartCondor. A node must be ended with Stop.
func Boot(ctx context.Context, o Options) (*Node, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "node"
	}
	image, err := imageOf(ctx, o)
	if err != nil {
		return nil, err
	}
	st, err := newState(o.Name)
	if err != nil {
		return nil, err
	}
	n := &Node{name: o.Name, state: st}
	if err := n.boot(ctx, image, o); err != nil {
		return nil, errors.Join(fmt.Errorf("boot node %s: %w", o.Name, err), n.Stop())
	}
	return n, nil
}

// boot is straight wiring: state on disk, cgroup, PID 1, wait.
func (n *Node) boot(ctx context.Context, image string, o Options) error {
	if err := n.state.write(image, o); err != nil {
		return err
	}
	cg, err := newCgroup(n.state.id)
	if err != nil {
		return err
	}
	n.cgroup = cg
	n.up, err = launch(n.state, image, cg)
	if err != nil {
		return err
	}
	// From the start of PID 1 to "running" it is 0.3 s on a quiet machine.
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	n.leader, err = n.up.leader(ctx)
	if err != nil {
		return fmt.Errorf("%w; console: %s", err, n.state.console())
	}
	if err := n.state.put("leader", strconv.Itoa(n.leader)+"\n"); err != nil {
		return err
	}
	return n.waitBooted(ctx)
}

// waitBooted asks systemd until it answers, then lets systemd do the waiting.
func (n *Node) waitBooted(ctx context.Context) error {
	for {
		for !n.exists("/run/systemd/private") && !n.up.ended() && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		res, err := n.Run(ctx, "systemctl", "is-system-running", "--wait")
		switch state := strings.TrimSpace(res.Stdout); state {
		case "running", "degraded":
			return nil
		default:
			if n.up.ended() {
				return fmt.Errorf("PID 1 died; console: %s", n.state.console())
			}
			if ctx.Err() != nil {
				return fmt.Errorf("systemd is %q: %w: %w%s", state, ctx.Err(), err, n.diagnosis())
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop ends the node and removes all that it left on the host. It kills: nothing inside is asked to shut down
// (a test that wants that runs "systemctl poweroff" first). Calling it again returns the first result.
func (n *Node) Stop() error {
	n.stop.Do(func() { n.stopOK = n.end() })
	return n.stopOK
}

func (n *Node) end() error {
	var errs []error
	if n.up != nil {
		// PID 1 first: the kernel then kills every process of its namespace before it reports the death.
		if n.leader > 0 && !n.up.ended() {
			_ = syscall.Kill(n.leader, syscall.SIGKILL)
		}
		errs = append(errs, n.up.end())
	}
	if n.cgroup != nil {
		errs = append(errs, n.cgroup.remove())
	}
	errs = append(errs, n.state.remove())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop node %s: %w", n.name, err)
	}
	return nil
}
