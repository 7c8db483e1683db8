package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a node's directory in the host's cgroup v2 tree, with three parts: "launcher" holds the process
// that waits for PID 1 on the host, "guest" is the root of the tree that the node sees, and below it "exec"
// holds one cgroup per command that a test runs inside.
type cgroup struct{ dir string }

func (c *cgroup) launcher() string { return filepath.Join(c.dir, "launcher") }
func (c *cgroup) guest() string    { return filepath.Join(c.dir, "guest") }
func (c *cgroup) exec() string     { return filepath.Join(c.guest(), "exec") }

// cgroupRoot finds the host's cgroup v2 tree: /sys/fs/cgroup, or a directory below it on a hybrid host.
func cgroupRoot() (string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("a test node needs a cgroup v2 mount, and this host has none")
}

func newCgroup(id string) (*cgroup, error) {
	root, err := cgroupRoot()
	if err != nil {
		return nil, err
	}
	c := &cgroup{dir: filepath.Join(root, "gpuslot-node-"+id)}
	for _, dir := range []string{c.dir, c.launcher(), c.guest()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	c.delegate(root)
	// After the controllers: a command started while systemd boots must find its place.
	return c, os.Mkdir(c.exec(), 0o755)
}

// delegate passes the host's controllers down to the node. On a hybrid host there are none, and on others a
// controller may be refused (a real-time process holds "cpu"): the node then boots without.
func (c *cgroup) delegate(root string) {
	data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, name := range strings.Fields(string(data)) {
		for _, dir := range []string{root, c.dir} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		}
	}
}

// openCgroup returns the cgroup of a node that some other process booted.
func openCgroup(id string) (*cgroup, error) {
	root, err := cgroupRoot()
	if err != nil {
		return nil, err
	}
	c := &cgroup{dir: filepath.Join(root, "gpuslot-node-"+id)}
	_, err = os.Stat(c.dir)
	return c, err
}

// remove kills what is left in the tree and removes it, leaves first.
func (c *cgroup) remove() error {
	kill(c.dir)
	return removeCgroups(c.dir)
}

// kill ends every process below a cgroup (kernel 5.14 or later; older ones have no such file).
func kill(dir string) {
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644)
}

// removeCgroups removes a tree of cgroups. A killed process keeps its cgroup busy until it is reaped.
func removeCgroups(dir string) error {
	var last error
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		var dirs []string
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return err
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		if err != nil {
			return err
		}
		last = nil
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) && last == nil {
				last = fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
			}
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
	}
}
