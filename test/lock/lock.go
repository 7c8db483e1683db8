// Package lock has another process hold the lock of a file, for tests of what says who has it.
package lock

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// By starts a process, "flock", that holds the lock of a new file until the test ends.
func By(t *testing.T, path string) (pid int) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("flock", "--close", path, "sh", "-c", "echo locked; cat")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return c.Process.Pid
}
