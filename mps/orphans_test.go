package mps

import (
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
// environment says.
func TestNotOrphans(t *testing.T) {
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{dir: t.TempDir()}
	for mode, want := range map[os.FileMode]bool{0o777: false, 0o755: true} {
		program := filepath.Join(t.TempDir(), serverProgram)
		if err := os.WriteFile(program, sleep, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(program, mode); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(program, "1000")
		c.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.dir}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(d.orphans(), c.Process.Pid); got != want {
			t.Errorf("a server by its name in a file of mode %v: %v", mode, got)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}
