// Package alone runs the tests of a package in a PID and a mount namespace of
// their own. What looks through /proc there sees the processes of these tests
// and no others, and whatever ends the tests ends all that they started. A
// TestMain begins with Enter.
package alone

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// role says what this process is: process 1 of the namespace, or the tests in it.
const role = "GPUSLOT_TEST_ALONE"

// Enter returns in the process that runs the tests. Any other process that
// calls it starts that one, and ends with its exit code. Without root, or where
// namespaces are not to be had, the tests run where they are.
func Enter() {
	switch os.Getenv(role) {
	case "tests":
		return
	case "init":
		os.Exit(Init(again("tests")))
	}
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	cmd := again("init")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return
	}
	pass(cmd.Process)
	_ = cmd.Wait() // its exit code says it
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		os.Exit(code)
	}
	fmt.Fprintln(os.Stderr, "the tests in their namespaces:", cmd.ProcessState)
	os.Exit(1)
}

// again is this program with these arguments, as another role.
func again(as string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// pass hands the signals that end tests on to a process.
func pass(p *os.Process) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range signals {
			_ = p.Signal(s)
		}
	}()
}

// Init is process 1 of namespaces: it mounts their /proc, starts a command,
// waits for whatever ends, and returns the command's exit code.
func Init(cmd *exec.Cmd) int {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		return 1
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mount /proc:", err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	pass(cmd.Process)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid && status.Signaled():
			return 1
		}
	}
}
