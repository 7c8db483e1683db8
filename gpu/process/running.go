package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mostRunning bounds the descriptors of a Running.
const mostRunning = 4096

// Running knows which of many processes still run, by one system call for all of them: it has
// a pidfd of each, which is ready when the process has ended (pidfd_open(2), Linux 5.3). A
// process that it cannot follow is not found, and the caller reads /proc instead. The zero
// value follows none. One goroutine uses it.
type Running struct {
	fs FS
	// epoll is 0 before the first process.
	epoll int
	// followed are the processes by PID.
	followed map[int]followed
}

type followed struct {
	ID
	pidfd int
}

// NewRunning follows processes of this /proc.
func NewRunning(fs FS) *Running { return &Running{fs: fs, followed: map[int]followed{}} }

// Find is the process that has a PID, if it is followed and still ran at the last Refresh. It
// has had the PID since Add.
func (r *Running) Find(pid int) (id ID, ok bool) {
	f, ok := r.followed[pid]
	return f.ID, ok
}

// Now is the process that has a PID, if one runs. One that is not followed is read from /proc, and then followed. Of
// one that the kernel does not answer (ErrHeld) the start is not known.
func (r *Running) Now(pid int) (id ID, ok bool) {
	if id, ok = r.Find(pid); ok {
		return id, true
	}
	now, err := r.fs.Stat(pid)
	if errors.Is(err, ErrHeld) {
		return ID{PID: pid}, true
	}
	if err != nil || now.Ended() {
		return ID{}, false
	}
	r.Add(now.ID)
	return now.ID, true
}

// Add follows a process that was just read from /proc.
func (r *Running) Add(id ID) {
	if r.fs.root() != "/proc" || len(r.followed) >= mostRunning {
		return // of another /proc, the PIDs are not those of the system call
	}
	if r.epoll == 0 {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return
		}
		r.epoll = fd
	}
	r.drop(id.PID)
	pidfd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return
	}
	// The same process had the PID before and has it now: the descriptor is its own.
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id.PID)}
	if now, _ := r.fs.Stat(id.PID); !now.Shows(id) || unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, pidfd, &event) != nil {
		_ = unix.Close(pidfd)
		return
	}
	r.followed[id.PID] = followed{id, pidfd}
}

// Refresh drops the processes that have ended.
func (r *Running) Refresh() {
	if r.epoll == 0 {
		return
	}
	var events [64]unix.EpollEvent
	for {
		n, err := uninterrupted(func() (int, error) { return unix.EpollWait(r.epoll, events[:], 0) })
		if err != nil {
			r.Keep(func(ID) bool { return false })
			return
		}
		for _, e := range events[:n] {
			r.drop(int(e.Fd))
		}
		if n < len(events) {
			return
		}
	}
}

// Keep follows no process any more but those that are wanted.
func (r *Running) Keep(wanted func(ID) bool) {
	for pid, f := range r.followed {
		if !wanted(f.ID) {
			r.drop(pid)
		}
	}
}

func (r *Running) drop(pid int) {
	f, ok := r.followed[pid]
	if !ok {
		return
	}
	delete(r.followed, pid)
	_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, f.pidfd, nil) // closing it does the same, but for a fork
	_ = unix.Close(f.pidfd)
}
