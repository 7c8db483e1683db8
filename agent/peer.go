package agent

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer is the other end of a unix socket, as the kernel recorded it at connect.
type peer struct {
	uid uint32
	pid int
}

// peerOf reads SO_PEERCRED.
func peerOf(c *net.UnixConn) (peer, error) {
	var cred *unix.Ucred
	err := control(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return peer{}, fmt.Errorf("read the caller's credentials: %w", err)
	}
	return peer{uid: cred.Uid, pid: int(cred.Pid)}, nil
}

// peerHandle reads SO_PEERPIDFD, which refers to the very process that
// connected, so that its number cannot be reused unseen; -1 on kernels before 6.5.
func peerHandle(c *net.UnixConn) (pidfd int, err error) {
	err = control(c, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("the caller is gone: %w", err)
	}
	return pidfd, nil
}

func control(c *net.UnixConn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var errDo error
	err = raw.Control(func(fd uintptr) { errDo = do(int(fd)) })
	return errors.Join(err, errDo)
}

// identifyPeer identifies the process behind a connection and makes sure that
// it was the same one from the connect to the last read of /proc.
func (fs procFS) identifyPeer(conn *net.UnixConn, p peer, trusted func(uint32) bool) (Caller, error) {
	if p.pid <= 0 {
		return Caller{}, errors.New("the caller is in another PID namespace: run gpuslotd in the host's")
	}
	pidfd, err := peerHandle(conn)
	if err != nil {
		return Caller{}, err
	}
	if pidfd >= 0 {
		defer closeHandle(pidfd)
	}
	return fs.identifyHeld(pidfd, p, trusted)
}

// identifyHeld identifies the process that a pidfd keeps from being mistaken. Where
// the kernel gives none, -1, another process may have the PID by now: it must at
// least have the account that connected.
func (fs procFS) identifyHeld(pidfd int, p peer, trusted func(uint32) bool) (Caller, error) {
	before, err := fs.Stat(p.pid)
	if err != nil {
		return Caller{}, fmt.Errorf("the caller is gone: %w", err)
	}
	if pidfd < 0 && !fs.actsAs(p.pid, p.uid) {
		return Caller{}, errors.New("the caller is gone: another account's process has its PID")
	}
	c, err := fs.identify(p.uid, p.pid, trusted)
	if err != nil {
		return c, err
	}
	if ended(pidfd) || !fs.Runs(before.ID) {
		return c, errors.New("the caller ended while it was being identified")
	}
	return c, nil
}

// actsAs says whether a process has this effective uid, which is the one that a
// socket's credentials show.
func (fs procFS) actsAs(pid int, uid uint32) bool {
	uids, err := fs.UIDs(pid)
	return err == nil && uids.Effective == uid
}

// peerBelowStartd says whether the startd itself started the caller.
func (fs procFS) peerBelowStartd(p peer, trusted func(uint32) bool) bool {
	return fs.actsAs(p.pid, p.uid) && fs.belowStartd(p.pid, trusted)
}

// closeHandle cannot fail in a way that matters: nothing was written.
func closeHandle(pidfd int) { _ = unix.Close(pidfd) }

// ended asks a pidfd, which becomes readable when its process ends.
func ended(pidfd int) bool {
	if pidfd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
