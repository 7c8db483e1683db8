package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
)

// The tests run in a PID and mount namespace of their own: no other starter of
// this machine is in sight of the agent, a file system can be filled, and
// whatever happens no process is left. role says what this process is there.
const role = "GPUSLOT_FAULTS_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "init":
		os.Exit(initProcess())
	case "tests":
		os.Exit(withPrograms(m))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // each test skips by name
	}
	os.Exit(outside(m))
}

// programsDir is where the programs under test are built, once for all tests.
const programsDir = "GPUSLOT_FAULTS_PROGRAMS"

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "faults")
	if err == nil {
		err = os.Setenv(programsDir, dir)
	}
	if err == nil {
		err = manyCPUs(dir + "/online")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}

// manyCPUs gives the machine a CPU for every share: without one nothing is
// offered. Nobody pins to them.
func manyCPUs(file string) error {
	if err := os.WriteFile(file, []byte("0-63\n"), 0o644); err != nil {
		return err
	}
	return syscall.Mount(file, "/sys/devices/system/cpu/online", "", syscall.MS_BIND, "")
}

// outside runs the tests inside and passes their end on.
func outside(m *testing.M) int {
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	cmd := again("init")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "no namespaces here:", err)
		return m.Run()
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

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

// initProcess is process 1 of the namespace: it starts the tests and buries
// what others leave.
func initProcess() int {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		return 1
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mount /proc:", err)
		return 1
	}
	cmd := again("tests")
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
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

// inside skips a test that cannot have the namespaces.
func inside(t *testing.T) {
	t.Helper()
	if os.Getenv(role) != "tests" {
		t.Skip("needs root, and a PID and a mount namespace: starters are root's, and a file system is filled")
	}
}
