package room

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Unsent says whether the kernel keeps anything of what was written to a socket: what the other end of a
// unix socket has not read, or that of TCP has no room for. A closed socket has nothing to say: false.
func Unsent(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var kept int
	closed := raw.Control(func(fd uintptr) { kept, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return closed == nil && (err != nil || kept > 0)
}
