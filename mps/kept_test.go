package mps

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKeptConnection: a connection that a job kept open stays open when the account's access
// ends, and the daemon answers nobody else meanwhile. A restart ends it, and the log pipe that
// the job kept open reaches nobody then.
func TestKeptConnection(t *testing.T) {
	needsRoot(t)
	onEachDriver(t, func(t *testing.T, r Processes) {
		s := daemonsOf(r)
		wanted := Wanted{uuid0, 2048, 100}
		wantResults(t, set(t, s, []Wanted{wanted}), Started, 1)
		d, err := s.Daemon(uuid0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Restrict(d.dir), Admit(d.dir, 4711)); err != nil {
			t.Fatal(err)
		}
		log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		kept, err := net.Dial("unixpacket", filepath.Join(d.dir, "control"))
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		if err := Revoke(d.dir, 4711); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := d.Check(ctx, wanted); FaultOf(err) != Busy && FaultOf(err) != Wedged {
			t.Fatalf("it answers others beside a kept connection: %v", err)
		}

		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if res := s.Restart(ctx, wanted); res.Err != nil {
			t.Fatal(res.Err)
		}
		if _, err := d.Check(ctx, wanted); err != nil {
			t.Error(err)
		}
		_ = kept.SetReadDeadline(time.Now().Add(time.Minute))
		for b := make([]byte, 64); err == nil; {
			var n int
			if n, err = kept.Read(b); n == 0 && err == nil {
				break // its end, as seqpacket sockets say it
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the kept connection is open")
		}
		if _, err := log.WriteString("x\n"); !errors.Is(err, unix.EPIPE) {
			t.Errorf("the kept log pipe is read: %v", err)
		}
	})
}
