package node

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed image.sh
var imageScript []byte

// Image returns the directory of the root file system that nodes boot from, and builds it when it is not in
// the cache (about 35 s, once per machine and recipe). Progress takes a line for each long step; nil is silent.
func Image(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "gpuslot-node-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	// The script travels in the binary: a test binary may run far from its source.
	script := filepath.Join(dir, "image.sh")
	if err := os.WriteFile(script, imageScript, 0o700); err != nil {
		return "", err
	}
	var log bytes.Buffer
	var errOut io.Writer = &log
	if progress != nil {
		errOut = io.MultiWriter(&log, progress)
	}
	cmd := exec.CommandContext(ctx, "sh", script)
	// Not SIGKILL: the script then has no chance to remove its half-built tree.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.Stderr = errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the node image: %w: %s", err, tail(log.String(), 20))
	}
	return strings.TrimSpace(string(out)), nil
}

// Available returns nil when a node can be booted here, or one sentence that says what is missing.
func Available() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("a test node needs linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("a test node needs root: run the tests as root")
	}
	for _, tool := range []string{"unshare", "nsenter", "mount", "pivot_root"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("a test node needs %s: install util-linux and mount", tool)
		}
	}
	root, err := cgroupRoot()
	if err != nil {
		return err
	}
	if err := unix.Access(root, unix.W_OK); err != nil {
		return fmt.Errorf("a test node needs a writable cgroup v2 tree: %s: %w", root, err)
	}
	if data, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(data), "\toverlay\n") {
		// It may be a module that is not loaded yet; mount loads it, so only complain where that cannot work.
		if _, err := os.Stat("/proc/modules"); err != nil {
			return errors.New("a test node needs overlayfs in the kernel")
		}
	}
	return imageAvailable()
}

// imageAvailable asks whether the image is there or could be built.
func imageAvailable() error {
	if _, err := exec.LookPath("apt-get"); err == nil {
		return nil
	}
	cmd := exec.Command("sh", "-s", "--", "--path")
	cmd.Stdin = bytes.NewReader(imageScript)
	_ = cmd
	return errors.New("a test node needs its image: there is no apt-get here to build it with")
}
