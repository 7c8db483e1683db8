// Package startd stands in for condor_startd: the agent believes a condor_starter only
// below one. The program that stands in for the starter runs under both names.
package startd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

const (
	starterName = "condor_starter"
	startdName  = "condor_startd"
)

// Starter is a command that runs a starter, a program of the name condor_starter
// that calls Run first, below a startd of its own.
func Starter(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	path := filepath.Join(filepath.Dir(program), startdName)
	if err := os.Link(program, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return exec.CommandContext(ctx, path, args...), nil
}

// Run returns at once in a starter. In a startd it runs the starter, which dies with
// it, and ends as that does.
func Run() {
	program, err := os.Executable()
	if err == nil && filepath.Base(program) != startdName {
		return
	}
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	if os.Getenv(manyEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "condor_startd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	c := exec.Command(filepath.Join(filepath.Dir(program), starterName), os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.Run() == nil {
		os.Exit(0)
	}
	os.Exit(1)
}
