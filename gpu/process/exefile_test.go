package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fuse is a file system of one program, /p, for the kernel's FUSE. Once it is deaf it
// answers no question for attributes, with noFlush no close, and silent it answers nothing but the attributes of its root.
type fuse struct {
	dir                   string
	fd                    int
	program               []byte
	deaf, noFlush, silent atomic.Bool
	// flush has a close that is not answered.
	flush chan struct{}
	// end ends all waits for it, which no signal can.
	end func()
}

// mountFUSE makes it, until the test ends.
func mountFUSE(t *testing.T, dir string, program []byte) *fuse {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	f := &fuse{dir: dir, fd: fd, program: program, flush: make(chan struct{}, 1)}
	if err := unix.Mount("fuse", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		unix.Close(fd)
		t.Skipf("no FUSE may be mounted here: %v", err)
	}
	f.end = sync.OnceFunc(func() {
		if unix.Unmount(dir, unix.MNT_FORCE) == nil { // which ends what waits, in any case
			return
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	go f.serve()
	t.Cleanup(f.end)
	return f
}

// The requests that are answered; linux/fuse.h.
const (
	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseRelease = 18
	fuseFlush   = 25
	fuseInit    = 26
)

type fuseAttr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime                                          uint64
	Atimensec, Mtimensec, Ctimensec, Mode, Nlink, UID, GID, Rdev, BlockSize, Unused uint32
}

func (f *fuse) attr(node uint64) fuseAttr {
	if node == 1 {
		return fuseAttr{Ino: 1, Mode: unix.S_IFDIR | 0o755, Nlink: 2}
	}
	return fuseAttr{Ino: 2, Size: uint64(len(f.program)), Mode: unix.S_IFREG | 0o755, Nlink: 1}
}

// answer is what a request is answered with; no answer where ok is false. All times for
// which the kernel may believe an attribute are zero.
func (f *fuse) answer(op uint32, node uint64, in []byte) (out any, errno int32, ok bool) {
	switch op {
	case fuseInit:
		return struct {
			Major, Minor, ReadAhead, Flags uint32
			Background, Congestion         uint16
			MaxWrite, TimeGran             uint32
			Rest                           [36]byte
		}{Major: 7, Minor: 31, ReadAhead: 1 << 17, MaxWrite: 1 << 17}, 0, true
	case fuseLookup:
		if string(in) != "p\x00" {
			return nil, int32(unix.ENOENT), true
		}
		return struct {
			Node uint64
			Rest [32]byte
			Attr fuseAttr
		}{Node: 2, Attr: f.attr(2)}, 0, true
	case fuseGetattr:
		return struct {
			Valid [16]byte
			Attr  fuseAttr
		}{Attr: f.attr(node)}, 0, !f.deaf.Load()
	case fuseOpen:
		return [16]byte{}, 0, true
	case fuseRead:
		at, size := binary.NativeEndian.Uint64(in[8:]), uint64(binary.NativeEndian.Uint32(in[16:]))
		from := min(at, uint64(len(f.program)))
		return f.program[from:min(from+size, uint64(len(f.program)))], 0, true
	case fuseFlush:
		if f.noFlush.Load() {
			select {
			case f.flush <- struct{}{}:
			default:
			}
			return nil, 0, false
		}
		return nil, 0, true
	case fuseRelease:
		return nil, 0, true
	case fuseForget:
		return nil, 0, false
	}
	return nil, int32(unix.ENOSYS), true
}

func (f *fuse) serve() {
	buffer := make([]byte, 1<<18)
	for {
		n, err := unix.Read(f.fd, buffer)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil {
			return // it is closed
		}
		in := buffer[:n]
		op, node := binary.NativeEndian.Uint32(in[4:]), binary.NativeEndian.Uint64(in[16:])
		if f.silent.Load() && op != fuseInit && (op != fuseGetattr || node != 1) {
			continue
		}
		out, errno, ok := f.answer(op, node, in[40:])
		if !ok {
			continue
		}
		var b bytes.Buffer
		_ = binary.Write(&b, binary.NativeEndian, [2]int32{0, -errno})
		b.Write(in[8:16])
		if out != nil {
			_ = binary.Write(&b, binary.NativeEndian, out)
		}
		binary.NativeEndian.PutUint32(b.Bytes(), uint32(b.Len()))
		_, _ = unix.Write(f.fd, b.Bytes())
	}
}

// TestExeFileOfAFileSystemThatDoesNotAnswer: a process that runs a program of its own file
// system, and has a file of it open, does not hold who asks for these files.
func TestExeFileOfAFileSystemThatDoesNotAnswer(t *testing.T) {
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := mountFUSE(t, dir, program)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "p"), "3600")
	open, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	cmd.ExtraFiles = []*os.File{open}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	f.deaf.Store(true)
	type result struct {
		file  File
		err   error
		opens bool
	}
	got := make(chan result, 1)
	go func() {
		file, err := FS{Root: "/proc"}.ExeFile(cmd.Process.Pid)
		opens, _, errOpens := Opens(FS{}, cmd.Process.Pid, 100, func(f File) bool { return f.is(file) })
		got <- result{file, errors.Join(err, errOpens), len(opens) > 0}
	}()
	select {
	case r := <-got:
		if r.err != nil || !r.opens || r.file.Inode != 2 || r.file.Mode != unix.S_IFREG|0o755 {
			t.Errorf("%+v", r)
		}
	case <-time.After(time.Minute):
		t.Error("the file system that does not answer was waited for")
		f.end()
	}
}
