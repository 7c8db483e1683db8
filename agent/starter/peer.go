package starter

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
)

// Peer is the other end of a unix socket, as the kernel recorded it at connect.
type Peer struct {
	UID uint32
	PID int
}

// PeerOf reads SO_PEERCRED.
func PeerOf(c *net.UnixConn) (Peer, error) {
	var cred *unix.Ucred
	err := control(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Peer{}, fmt.Errorf("read the caller's credentials: %w", err)
	}
	return Peer{UID: cred.Uid, PID: int(cred.Pid)}, nil
}

// noHandle stands for the pidfd that kernels before 6.5 do not give.
const noHandle = -1

// peerHandle reads SO_PEERPIDFD, the very process that connected, whose number cannot be reused unseen; or noHandle.
func peerHandle(c *net.UnixConn) (pidfd int, err error) {
	err = control(c, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return noHandle, nil
	case err != nil:
		return noHandle, fmt.Errorf("the caller is gone: %w", err)
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

// IdentifyPeer identifies the process behind a connection and makes sure that
// it was the same one from the connect to the last read of /proc.
func (n Node) IdentifyPeer(conn *net.UnixConn, p Peer) (Caller, error) {
	if p.PID <= 0 {
		return Caller{}, errors.New("the caller is in another PID namespace: run gpuslotd in the host's")
	}
	pidfd, err := peerHandle(conn)
	if err != nil {
		return Caller{}, err
	}
	if pidfd != noHandle {
		defer func() { _ = unix.Close(pidfd) }() // nothing was written
	}
	return n.identifyHeld(pidfd, p)
}

// forCaller reads something for a caller, which may have a thousand requests at a time. Its reads take as long as it
// likes: each has a place (Turns) while somebody waits for it.
func forCaller[T any](n Node, uid uint32, read func(Node) (T, error)) (value T, err error) {
	if n.asker = uid; n.Turns != nil && !n.trusts(uid) && reads.OwnerOf(uid) != 0 {
		leave, err := n.Turns.Reads.Enter(uid)
		if err != nil {
			return value, err
		}
		defer leave()
	}
	return process.Together(n.FS, func(fs process.FS) (T, error) {
		n.FS = fs
		return read(n)
	})
}

// identifyHeld identifies the process that a pidfd keeps from being mistaken. Where the kernel gives none, another
// process may have the PID by now: it must at least have the account that connected.
func (n Node) identifyHeld(pidfd int, p Peer) (Caller, error) {
	c, err := forCaller(n, p.UID, func(n Node) (Caller, error) {
		before, err := n.Stat(p.PID)
		if err != nil {
			return Caller{}, fmt.Errorf("the caller is gone: %w", err)
		}
		if before.Ended() || ended(pidfd) {
			return Caller{}, errors.New("the caller has ended")
		}
		if pidfd == noHandle && !n.actsAs(p.PID, p.UID) {
			return Caller{}, errors.New("the caller is gone: another account's process has its PID")
		}
		c, err := n.Identify(p.UID, p.PID)
		if err != nil {
			return c, err
		}
		c.Started = before.Started
		if now, _ := n.Stat(p.PID); ended(pidfd) || !now.Shows(before.ID) {
			return c, errors.New("the caller ended while it was being identified")
		}
		return c, nil
	})
	c.Leaf.Left = c.Leaf.Left || err == nil && Remade(n.Mount, c.Leaf.Path) // that may take longer
	return c, err
}

// actsAs says whether a process has this effective uid, which is the one that a socket's credentials show.
func (n Node) actsAs(pid int, uid uint32) bool {
	of, err := n.Owner(pid)
	return err == nil && of.UID == uid
}

// PeerBelowStartd says whether the startd itself started the caller.
func (n Node) PeerBelowStartd(p Peer) bool {
	is, err := forCaller(n, p.UID, func(n Node) (bool, error) {
		return n.actsAs(p.PID, p.UID) && n.belowStartd(p.PID), nil
	})
	return is && err == nil
}

// ended asks a pidfd, which becomes readable when its process ends.
func ended(pidfd int) bool {
	if pidfd == noHandle {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
