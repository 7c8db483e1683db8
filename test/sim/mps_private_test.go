package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPrivateLog: the log pipe is open to every account until its
// mode is changed after the start. Without a server on PATH the log says only
// that it exited with status 1.
func TestPrivateLog(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		write := func() bool {
			cmd := exec.Command("sh", "-c", `exec 3>>"$0"`, filepath.Join(b.pipe, "log"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
			return cmd.Run() == nil
		}
		if !write() {
			t.Error("another account cannot write to the log pipe of a daemon that made it")
		}
		if err := os.Chmod(filepath.Join(b.pipe, "log"), 0o600); err != nil {
			t.Fatal(err)
		}
		if write() {
			t.Error("another account writes to a log pipe of mode 0600")
		}
		b.fails()
		if !strings.Contains(b.output(), "exited with status 1") {
			t.Errorf("without a server the log says %q", b.output())
		}
	})
}
