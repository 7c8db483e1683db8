package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
)

// TestLockOfAnother: whoever has the lock is named.
func TestLockOfAnother(t *testing.T) {
	p := config.Paths{Run: t.TempDir()}
	by := lockedBy(t, filepath.Join(p.Run, "agent.lock"))
	unlock, err := lockRun(p)
	if err == nil {
		unlock()
		t.Fatal("two hold the lock")
	}
	if want := fmt.Sprintf("process %d (\"flock\") runs (state", by); !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q in it", err, want)
	}
}

// lockedBy starts a process that holds a lock.
func lockedBy(t *testing.T, path string) (pid int) {
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
