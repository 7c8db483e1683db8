package faults

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/test/alone"
)

// Each test runs in a PID and mount namespace of its own: no other starter of
// this machine is in sight of its agent, a file system can be filled, tests
// run beside each other, and whatever happens no process is left. role says
// what this process is there.
const role = "GPUSLOT_FAULTS_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "init":
		os.Exit(alone.Init(again("tests", os.Args[1:]...)))
	case "tests":
		os.Exit(withCPUs(m))
	}
	os.Exit(withPrograms(m))
}

// programsDir is where the programs under test are built, once for all tests.
const programsDir = "GPUSLOT_FAULTS_PROGRAMS"

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "faults")
	if err == nil {
		err = os.Setenv(programsDir, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	freshSeed()
	return m.Run()
}

// withCPUs gives the machine a CPU for every share: without one nothing is
// offered. Nobody pins to them.
func withCPUs(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cpus")
	file := filepath.Join(dir, "online")
	if err == nil {
		err = os.WriteFile(file, []byte("0-63\n"), 0o644)
	}
	if err == nil {
		err = syscall.Mount(file, "/sys/devices/system/cpu/online", "", syscall.MS_BIND, "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := withNodes(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// withNodes gives the machine nodes of a driver, which are two of the kernel's own devices, in a /dev of these tests
// alone.
func withNodes() error {
	dir, err := os.MkdirTemp("", "dev")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755")
	}
	entries, no := os.ReadDir("/dev")
	if err = errors.Join(err, no); err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join("/dev", e.Name()), filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), "nvidia") {
			continue
		}
		switch info, _ := e.Info(); {
		case info == nil:
		case e.Type()&os.ModeSymlink != 0:
			link, _ := os.Readlink(from)
			err = os.Symlink(link, to)
		case e.IsDir():
			if err = os.Mkdir(to, 0o755); err == nil {
				err = syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, "")
			}
		case e.Type()&os.ModeCharDevice != 0:
			if err = syscall.Mknod(to, syscall.S_IFCHR|0o666, int(info.Sys().(*syscall.Stat_t).Rdev)); err == nil {
				err = os.Chmod(to, 0o666)
			}
		}
		if err != nil {
			return err
		}
	}
	for name, minor := range map[string]int{"nvidia-uvm": 7, "nvidiactl": 5} { // full and zero
		if err = syscall.Mknod(filepath.Join(dir, name), syscall.S_IFCHR|0o666, 1<<8|minor); err == nil {
			err = os.Chmod(filepath.Join(dir, name), 0o666)
		}
		if err != nil {
			return err
		}
	}
	return syscall.Mount(dir, "/dev", "", syscall.MS_MOVE, "")
}

// beside lets the subtests of a test run beside other tests.
func beside(t *testing.T) {
	if os.Getenv(role) != "tests" {
		t.Parallel()
	}
}

// elsewhere runs this test again in namespaces of its own, beside others, and
// passes its end on; false in there, where the test itself is to be run.
func elsewhere(t *testing.T) bool {
	t.Helper()
	if os.Getenv(role) == "tests" {
		return false
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, and a PID and a mount namespace: starters are root's, and a file system is filled")
	}
	t.Parallel()
	build(t)
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	defer runtime.UnlockOSThread()
	var said bytes.Buffer
	cmd := again("init", "-test.v", "-test.run="+pattern(t.Name()), "-test.timeout="+flag.Lookup("test.timeout").Value.String())
	out := io.MultiWriter(t.Output(), &said)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	switch err := cmd.Wait(); {
	case err != nil:
		t.Errorf("in its namespaces: %v", err)
	case bytes.Contains(said.Bytes(), []byte("--- SKIP: "+t.Name()+" ")):
		t.Skip("skipped in its namespaces")
	case !bytes.Contains(said.Bytes(), []byte("--- PASS: "+t.Name()+" ")):
		t.Error("it did not run in its namespaces")
	}
	return true
}

// pattern chooses one test and of its subtests those that -test.run asks for.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	if asked := strings.Split(flag.Lookup("test.run").Value.String(), "/"); len(asked) > len(parts) {
		parts = append(parts, asked[len(parts):]...)
	}
	return strings.Join(parts, "/")
}

func again(as string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}
