package server

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// soPassRights is SO_PASSRIGHTS of Linux 6.16.
const soPassRights = 83

// refuseDescriptors has the kernel refuse open files that callers send (SCM_RIGHTS), on this socket and those
// that it accepts. The last reference to a file may be the one in a message. The kernel closes it then within
// gpuslotd's own read, which waits for a TCP connection that lingers, past every deadline of ours.
func refuseDescriptors(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 0) })
	if errors.Is(err, unix.ENOPROTOOPT) {
		err = nil // before Linux 6.16
	}
	return errors.Join(failed, err)
}
