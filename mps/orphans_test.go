package mps

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestOrphans: the server of a killed daemon lives on, and ends before the next
// daemon starts.
func TestOrphans(t *testing.T) {
	onServed(t, func(s *served) {
		server := s.server()
		who, err := s.daemon.Alive()
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(who.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon is gone", func() bool {
			_, err := s.daemon.Alive()
			return FaultOf(err) == NotRunning
		})
		if !proc.Runs(server.ID) {
			t.Fatalf("server %d ended with its daemon", server.PID)
		}
		if err := s.runner.Start(t.Context(), s.wanted.GPU); err != nil {
			t.Fatal(err)
		}
		if proc.Runs(server.ID) {
			t.Errorf("server %d outlives its daemon and the start of the next", server.PID)
		}
	})
}

// TestNotOrphans: a user's program of the server's name is no server, whatever its
// environment says; nor is the installed program that a user started. The environment of
// such a process is memory that may never answer.
func TestNotOrphans(t *testing.T) {
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{dir: t.TempDir()}
	for _, c := range []struct {
		mode os.FileMode
		as   *syscall.Credential // nil: this test's
		want bool
	}{
		{0o777, nil, false},
		{0o755, nil, true},
		{0o755, &syscall.Credential{Uid: 4711, Gid: 0}, true}, // as root's daemon starts it for that account
		{0o755, &syscall.Credential{Uid: 4711, Gid: 4711}, false},
	} {
		if c.as != nil && os.Geteuid() != 0 {
			continue
		}
		program := writeProgram(t, filepath.Join(tempDir(t), serverProgram), string(sleep))
		if err := os.Chmod(program, c.mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "1000")
		cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		is := func() bool {
			orphans, err := d.orphans()
			return err == nil && slices.Contains(orphans, cmd.Process.Pid)
		}
		what := fmt.Sprintf("a server by its name in a file of mode %v, of %+v", c.mode, c.as)
		if c.want { // on a busy machine a look may be given up
			eventually(t, what, is)
		} else if is() {
			t.Error(what)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
