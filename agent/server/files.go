package server

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file owns the open files that callers send (SCM_RIGHTS), and with them the end of every connection. The
// kernel closes a file within the call that drops its last reference. That may be gpuslotd's read of a message, or
// its close of a connection with unread messages. The call waits then for what the sender chose, past every deadline
// of ours: for a TCP connection that lingers, or a file system of the sender's own (FUSE). SO_PASSRIGHTS
// (descriptors.go) is not enough. Linux has it from 6.16 on, and not for connections that were made before.
//
// So no message with files is read: gpuslotd looks at each before. A connection with anything unread is closed by a
// thread of its own, of which there are mostEndings at most. Signals end its wait for a TCP connection, and no wait for
// a file system.

// mostEndings is how many threads may close connections with unread messages, a quarter of those that gpuslotd
// may have (TasksMax of its unit).
const mostEndings = 256

// mostKept is how many connections may wait for such a thread. Above that no connection is accepted.
const mostKept = 16384

// How often such a thread gets a signal. One signal ends the waits for all files of a connection.
const (
	signalFirst = time.Millisecond
	signalRests = 100 * time.Millisecond
)

// errFiles is the error of a request with open files.
var errFiles = errors.New("a request sends no open files")

// withoutFiles reads a connection up to the first message with open files.
type withoutFiles struct{ raw syscall.RawConn }

// readerOf reads what a caller sends. It returns errFiles where that has open files.
func readerOf(conn *net.UnixConn) (io.Reader, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Otherwise a read drops what was sent out of band (MSG_OOB) and its files, and a look does not show them.
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
	return withoutFiles{raw}, errors.Join(failed, err)
}

func (r withoutFiles) Read(b []byte) (n int, err error) {
	failed := r.raw.Read(func(fd uintptr) bool {
		n, err = look(int(fd), b)
		if err == nil && n > 0 {
			// What was looked at, and not what came since. The race detector takes syscall's for the other end of a write.
			n, err = syscall.Read(int(fd), b[:n])
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case failed != nil || err != nil:
		return 0, errors.Join(failed, err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// look is how much can be read. The kernel says that there are open files, because there is no room for them
// (MSG_CTRUNC). It then drops references that are not the last: the message, which stays, has its own.
func look(fd int, b []byte) (n int, err error) {
	n, _, flags, _, err := unix.Recvmsg(fd, b, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errFiles
	}
	return n, err
}

// shut ends what a caller may send, and what it gets. It waits for nothing.
func shut(conn *net.UnixConn) { _, _ = conn.CloseRead(), conn.CloseWrite() }

// endings close connections, with mostEndings threads at most. A job can let all of them wait for as long as it likes.
// What waits for a thread then is kept in bags, so that it takes few descriptors however much it is.
type endings struct {
	mu      sync.Mutex
	threads int
	waiting []io.Closer
	// kept is the number of connections that wait.
	kept int
	// last is the bag of waiting that has room.
	last *bag
}

// end closes a connection, which nobody else does. It waits for nothing.
func (e *endings) end(conn *net.UnixConn) {
	shut(conn) // so that nothing comes any more
	if !unread(conn) {
		_ = conn.Close() // the reply is written or given up by now
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.threads < mostEndings {
		e.threads++
		go e.close(conn)
		return
	}
	e.keep(conn)
}

// close closes what may take long, one after the other.
func (e *endings) close(c io.Closer) {
	for c != nil {
		interrupted(func() { _ = c.Close() })
		c = e.next()
	}
}

// full says that no more connections may wait: the kernel keeps 6 KiB of each in the memory of gpuslotd's cgroup.
func (e *endings) full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept >= mostKept
}

// next is what waits for longest; nil ends the thread.
func (e *endings) next() io.Closer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		e.threads--
		return nil
	}
	c := e.waiting[0]
	e.waiting = e.waiting[1:]
	e.kept--
	if b, ok := c.(*bag); ok {
		e.kept -= b.has - 1
	}
	if c == io.Closer(e.last) {
		e.last = nil
	}
	return c
}

// keep puts a connection into a bag. The caller holds mu.
func (e *endings) keep(conn *net.UnixConn) {
	e.kept++
	if e.last == nil || e.last.put(conn) != nil {
		e.last.fill()
		e.last = nil
		b := newBag()
		if b == nil || b.put(conn) != nil {
			if b != nil {
				_ = b.Close() // it is empty
			}
			e.waiting = append(e.waiting, conn) // no descriptor is left for a bag, or the kernel takes no more within others
			return
		}
		e.last = b
		e.waiting = append(e.waiting, b)
	}
	_ = conn.Close() // this waits for nothing: the bag has it
}

// bag has some hundred connections as open files in messages of a socket to itself. Who closes it closes them.
type bag struct {
	in, out int
	// has is the number of connections.
	has int
}

// newBag is nil where there is no descriptor for it.
func newBag() *bag {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	return &bag{in: ends[0], out: ends[1]}
}

// put adds a connection; an error says that there is no room.
func (b *bag) put(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.Sendmsg(b.in, []byte{0}, unix.UnixRights(int(fd)), nil, 0) })
	if err = errors.Join(failed, err); err == nil {
		b.has++
	}
	return err
}

// fill says that nothing more is put into it.
func (b *bag) fill() {
	if b != nil && b.in >= 0 {
		_ = unix.Close(b.in)
		b.in = -1
	}
}

// Close closes the connections, which may take long.
func (b *bag) Close() error {
	b.fill()
	return unix.Close(b.out)
}

// unread says whether there may be anything in a connection that was not read.
func unread(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	bytes := 0
	failed := raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return failed != nil || err != nil || bytes > 0
}

// interrupted does what may wait in the kernel, and sends signals to its thread until it is done. The Go runtime
// sends itself SIGURG at any time, so one that comes after the end does nothing.
func interrupted(do func()) {
	thread, done := make(chan int, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		thread <- unix.Gettid()
		do()
	}()
	id := <-thread
	for again := signalFirst; ; again = min(2*again, signalRests) {
		select {
		case <-done:
			return
		case <-time.After(again):
			_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG) // a thread that has ended needs none
		}
	}
}
