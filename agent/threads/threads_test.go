package threads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/test/linger"
)

// TestLastClose: a call that closes a connection which lingers ends. It would last for an hour.
func TestLastClose(t *testing.T) {
	fd, ended := linger.Connection(t), make(chan struct{})
	go func() {
		defer close(ended)
		_ = unix.Close(fd)
	}()
	w := New()
	for deadline := time.After(5 * time.Minute); ; w.look() {
		select {
		case <-ended:
			return
		case <-deadline:
			t.Fatalf("it waits still; calls at the last look: %v", w.before)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestStop: a look that is under way has ended when stop returns.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, goOn, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		w := &Watch{tasks: t.TempDir(), signal: func(int) { in <- struct{}{}; <-goOn }}
		at := filepath.Join(w.tasks, "11", "syscall")
		if err := errors.Join(os.Mkdir(filepath.Dir(at), 0o755), os.WriteFile(at, fmt.Append(nil, unix.SYS_CLOSE), 0o600)); err != nil {
			t.Fatal(err)
		}
		stop := w.Start()
		<-in
		go func() { defer close(stopped); stop() }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("it waits for no look")
		default:
		}
		close(goOn)
		<-stopped
	})
}

// TestCallsThatGetASignal: a thread gets a signal at each look that finds it where it was at the last, in a call that
// may close a file.
func TestCallsThatGetASignal(t *testing.T) {
	var got []int
	w := &Watch{tasks: t.TempDir(), signal: func(thread int) { got = append(got, thread) }}
	in := func(thread int, line string) {
		dir := filepath.Join(w.tasks, fmt.Sprint(thread))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "syscall"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(number int, argument string) string {
		return fmt.Sprintf("%d %s 0x0 0x0 0x0 0x0 0x0 0x7ffef0963360 0x7fca4d002417\n", number, argument)
	}
	in(11, call(unix.SYS_CLOSE, "0x3"))
	in(12, call(unix.SYS_READ, "0x3"))
	in(13, call(unix.SYS_IOCTL, "0x3"))
	in(14, call(unix.SYS_FUTEX, "0x3"))
	in(15, "running\n")
	in(16, "")
	w.look()
	if got != nil {
		t.Errorf("at the first look: %v", got)
	}
	in(12, call(unix.SYS_READ, "0x4")) // another read
	w.look()
	in(17, call(unix.SYS_STATX, "0x3"))
	w.look()
	if err := os.RemoveAll(filepath.Join(w.tasks, "11")); err != nil {
		t.Fatal(err)
	}
	w.look()
	if want := []int{11, 11, 12, 12, 17}; !slices.Equal(got, want) {
		t.Errorf("signals to %v, want %v", got, want)
	}
}
