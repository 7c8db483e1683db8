package process

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMayHide: this process hides an open file in each of the places that the kernel has for it, one after the other.
func TestMayHide(t *testing.T) {
	f := open(t, "/dev/full")
	may := func() bool { return MayHide(FS{}, os.Getpid(), 1<<16) }
	for name, hide := range map[string]func(t *testing.T) func(){
		"nowhere": func(*testing.T) func() { return nil },
		"in a socket": func(t *testing.T) func() {
			ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Sendmsg(ends[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) }
		},
		"in an io_uring": func(t *testing.T) func() {
			ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[120]byte{})), 0)
			if errno != 0 {
				t.Skipf("this kernel gives no io_uring: %v", errno)
			}
			return func() { _ = unix.Close(int(ring)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			if show := hide(t); show == nil {
				if may() {
					t.Error("it may, and does not")
				}
			} else {
				if !may() {
					t.Error("it does, and may not")
				}
				if show(); may() {
					t.Error("it may, and does no longer")
				}
			}
		})
	}
	if MayHide(FS{}, 1<<30, 100) {
		t.Error("a process that has ended may")
	}
	if !MayHide(FS{}, os.Getpid(), 1) {
		t.Error("one whose files were not all looked at may not")
	}
}

// TestMayMap: a mapping keeps its file open.
func TestMayMap(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(name, make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, name)
	file, err := StatFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if MayMap(FS{}, os.Getpid(), file) {
		t.Error("before")
	}
	mapping, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if !MayMap(FS{}, os.Getpid(), file) {
		t.Error("while it is mapped")
	}
	if err := unix.Munmap(mapping); err != nil {
		t.Fatal(err)
	}
	if MayMap(FS{}, os.Getpid(), file) || MayMap(FS{}, 1<<30, file) {
		t.Error("after, or of a process that has ended")
	}
	var context uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0); errno != 0 {
		t.Skipf("this kernel gives no aio: %v", errno)
	}
	if !MayMap(FS{}, os.Getpid(), file) {
		t.Error("with a ring of aio")
	}
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, context, 0, 0)
}
