package mps

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTurnIsKeptByAnotherProgram: while another program of ours talks to the
// daemon we wait, and not longer than we may.
func TestTurnIsKeptByAnotherProgram(t *testing.T) {
	d := started(t, onDriver(t, "550"))
	f, err := os.OpenFile(filepath.Join(d.dir, turnFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = d.Command(ctx, "get_server_list")
	wantFault(t, err, Busy, "other gpuslot programs")

	got := make(chan error, 1)
	go func() { _, err := d.Command(t.Context(), "get_server_list"); got <- err }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestCancelled: the end of the program is no fault of the daemon.
func TestCancelled(t *testing.T) {
	d := started(t, onDriver(t, "550"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // the turn is free or not: whichever select sees first
		_, err := d.Command(ctx, "get_server_list")
		if err == nil || FaultOf(err) != "" {
			t.Fatalf("error %v, want one without a fault", err)
		}
	}
}

// TestStartAtOnce: of several starts one makes the daemon, and all succeed.
func TestStartAtOnce(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := mustDaemon(t, r, uuid0)
		if err := d.Prepare(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := r.Start(t.Context(), uuid0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		alive(t, d)
	})
}
