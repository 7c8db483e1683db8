package process

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func deviceOf(t *testing.T, name string) uint64 {
	t.Helper()
	f, err := statFile(name)
	if err != nil || f.Device == 0 {
		t.Fatalf("%s: %+v, %v", name, f, err)
	}
	return f.Device
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// of wants the descriptors of a device.
func of(device uint64) func(File) bool {
	return func(f File) bool { return f.Device == device }
}

// TestHandlesOf: the descriptors of a device are found under each of its names, and those of one open file are told
// from others by the kernel.
func TestHandlesOf(t *testing.T) {
	full := deviceOf(t, "/dev/full")
	a, b := open(t, "/dev/full"), open(t, "/dev/full")
	again, err := syscall.Dup(int(a.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(again)
	found, looked, err := HandlesOf(FS{}, os.Getpid(), 1<<16, of(full))
	if err != nil || len(found) != 3 || looked < 3 {
		t.Fatalf("%+v of %d, %v", found, looked, err)
	}
	at := func(fd int) Handle {
		return found[slices.IndexFunc(found, func(h Handle) bool { return h.FD == fd })]
	}
	for _, c := range []struct {
		one, other Handle
		want       bool
	}{
		{at(int(a.Fd())), at(again), true}, {at(int(a.Fd())), at(int(b.Fd())), false},
		{at(int(a.Fd())), Handle{Thread: os.Getpid(), FD: 9999}, false}, {at(int(a.Fd())), Handle{Thread: 1 << 30}, false},
	} {
		if same, err := SameFile(c.one, c.other); same != c.want || err != nil {
			t.Errorf("%+v and %+v: %t, %v", c.one, c.other, same, err)
		}
	}
	if _, looked, err := HandlesOf(FS{}, os.Getpid(), 2, of(full)); !errors.Is(err, ErrManyFiles) || looked != 2 {
		t.Errorf("among two files: %d, %v", looked, err)
	}
	if found, _, err := HandlesOf(FS{}, 1<<30, 10, of(full)); len(found) > 0 || err != nil {
		t.Errorf("of no process: %+v, %v", found, err)
	}
}

// onThread calls a function on a thread with a table of descriptors of its own, which ends after done. It is never the
// first thread: that one's table is what /proc shows of the process.
func onThread(done chan struct{}, do func()) error {
	ready := make(chan error)
	var begin func()
	begin = func() {
		runtime.LockOSThread() // and never back: the thread ends
		if unix.Gettid() == os.Getpid() {
			go begin()
			<-done
			return
		}
		err := unix.Unshare(unix.CLONE_FILES)
		do()
		ready <- err
		<-done
	}
	go begin()
	return <-ready
}

// TestUses: a mapped device counts as one that is open, until the last mapping goes.
func TestUses(t *testing.T) {
	zero := func(f File) bool { return f.Device == unix.Mkdev(1, 5) }
	check := func(want bool) {
		t.Helper()
		if has, err := Uses(FS{}, os.Getpid(), 1<<16, time.Minute, zero); len(has) > 0 != want || err != nil {
			t.Errorf("%v, %v, want it to be used: %t", has, err, want)
		}
	}
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	check(true)
	mapped, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_PRIVATE)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	check(true)
	if _, err := Uses(FS{}, os.Getpid(), 8, time.Minute, zero); !errors.Is(err, ErrManyFiles) {
		t.Errorf("of more files than are looked at: %v", err)
	}
	if _, err := Uses(FS{}, os.Getpid(), 1<<16, 0, zero); !errors.Is(err, ErrManyFiles) {
		t.Errorf("of more files than are looked at in the time: %v", err)
	}
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	check(false)
	if has, err := Uses(FS{}, 1<<30, 1<<16, time.Minute, zero); len(has) > 0 || err != nil {
		t.Errorf("of no process: %v, %v", has, err)
	}
}

// TestHandlesOfAThread: a thread may have a table of descriptors of its own.
func TestHandlesOfAThread(t *testing.T) {
	zero, done, fd := deviceOf(t, "/dev/zero"), make(chan struct{}), -1
	defer close(done)
	if err := onThread(done, func() { fd, _ = unix.Open("/dev/zero", unix.O_RDWR, 0) }); err != nil {
		t.Fatal(err)
	}
	found, _, err := HandlesOf(FS{}, os.Getpid(), 1<<16, of(zero))
	if err != nil || len(found) != 1 || found[0].FD != fd || found[0].Thread == os.Getpid() {
		t.Fatalf("%+v, %v; it is %d", found, err, fd)
	}
	for _, c := range []struct {
		others []int
		want   bool
	}{{nil, false}, {[]int{os.Getpid()}, false}, {[]int{1 << 30}, false}, {[]int{1 << 30, os.Getpid(), found[0].Thread}, true}} {
		if known := hasTable(c.others, found[0].Thread, func() error { return nil }); known != c.want {
			t.Errorf("it has the table of one of %v: %t", c.others, known)
		}
	}
}

// TestHandlesOfManyTables: threads with tables of their own are compared with each other so often at most.
func TestHandlesOfManyTables(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	for range 8 {
		if err := onThread(done, func() { _ = unix.CloseRange(0, 1<<30, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	for late := time.Now().Add(time.Minute); ; { // the kernel may list fewer while a thread of another test ends
		_, all, err := HandlesOf(FS{}, os.Getpid(), 1<<16, of(1))
		if err != nil || time.Now().After(late) {
			t.Fatal(all, err)
		}
		_, looked, err := HandlesOf(FS{}, os.Getpid(), all-1, of(1))
		if errors.Is(err, ErrManyFiles) && looked == all-1 {
			return
		}
	}
}
