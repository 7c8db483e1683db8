package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// frozen lets the next write of a file wait until thaw, as on a disk that does not
// answer: opening a FIFO for writing waits for a reader.
func frozen(t *testing.T, path string) (thaw func()) {
	t.Helper()
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(temp, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		f, err := os.OpenFile(temp, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { f.Close() })
	}
}

// TestFrozenDisk: while an owner's word waits for the disk, the GPU is closed
// already, and other GPUs take jobs, the startd is answered and so are operators.
func TestFrozenDisk(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	thaw := frozen(t, ta.view.Load().config.Paths.ClosuresFile())
	closed, rest := make(chan error, 1), make(chan string, 1)
	go func() { closed <- ta.close("1", "", "the fan is loud") }()
	go func() {
		for ta.reason(1) == "" {
			time.Sleep(time.Millisecond)
		}
		ta.status()
		if reply := ta.prepare(hookOf(ta.proc.starter(100, "slot1_1"), 1000), jobOn(ta.proc.starter(100, "slot1_1"), "alice", uuid(0), 4096)); reply.Grant == nil {
			rest <- "no job was admitted"
		}
		ta.closures.Node()
		rest <- ""
	}()
	select {
	case why := <-rest:
		if why != "" {
			t.Error(why)
		}
		select {
		case err := <-closed:
			t.Errorf("the disk was not waited for: %v", err)
		default:
		}
	case <-time.After(time.Minute):
		t.Error("a job's start, the startd or status waits for the disk")
	}
	thaw()
	if err := <-closed; err == nil { // a FIFO cannot be synced
		t.Error("what was not kept is no error")
	}
	if ta.reason(1) == "" {
		t.Error("it is open")
	}
}
