package mps

import (
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
		if st, err := statProcess(server.PID); err != nil || st.Process != server.Process || st.dead() {
			t.Fatalf("the server ended with its daemon: %+v, %v", st, err)
		}
		if err := s.runner.Start(t.Context(), s.wanted.GPU); err != nil {
			t.Fatal(err)
		}
		if st, err := statProcess(server.PID); err == nil && st.Process == server.Process && !st.dead() {
			t.Errorf("server %d outlives its daemon and the start of the next", server.PID)
		}
	})
}
