package node

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// The scripts travel in the binary: a test binary may run far from its source.
//
//go:embed image.sh
var imageScript string

// Image returns the directory of the root file system that nodes boot from, and builds it when it is not in
// the cache (about 35 s, once per machine and recipe). Progress takes a line for each long step; nil is silent.
func Image(ctx context.Context, progress io.Writer) (string, error) {
	return imageOf(ctx, Options{Progress: progress})
}

// imageOf is the Image of a node.
func imageOf(ctx context.Context, o Options) (string, error) {
	var log bytes.Buffer
	var out io.Writer = &log
	if o.Progress != nil {
		out = io.MultiWriter(&log, o.Progress)
	}
	path, err := imageCommand(ctx, out, o)
	if err != nil {
		return "", fmt.Errorf("build the node image: %w: %s", err, tail(log.String(), 20))
	}
	return path, nil
}

// imageBuilt asks whether the image is in the cache.
func imageBuilt() bool {
	_, err := imageCommand(context.Background(), io.Discard, Options{}, "--path")
	return err == nil
}

// imageCommand runs image.sh and returns the path that it prints.
func imageCommand(ctx context.Context, stderr io.Writer, o Options, args ...string) (string, error) {
	dir, err := os.MkdirTemp("", "gpuslot-node-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "image.sh")
	if err := os.WriteFile(script, []byte(imageScript), 0o700); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_SYSTEMD="+o.Systemd)
	if o.Suite != "" {
		cmd.Env = append(cmd.Env, "NODE_SUITE="+o.Suite, "NODE_CONDOR=no")
	}
	cmd.Stderr = stderr
	// A group of its own, and SIGTERM to all of it: the script then ends its children and removes the half-built tree.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	// The parent-death signal is that of the thread: keep this goroutine on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
