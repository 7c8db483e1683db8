// Package linger makes files whose close waits in the kernel, as a job can.
package linger

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Connection is a TCP connection whose last close waits for an hour (SO_LINGER): its peer reads nothing, and
// there is no room for all of its data. The peer ends with the test, and so does a close that still waits.
func Connection(t *testing.T) (fd int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(err)
		return fd
	}
	l := socket()
	defer unix.Close(l)
	must(unix.SetsockoptInt(l, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)) // less than the other side keeps
	must(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(unix.Listen(l, 1))
	at, err := unix.Getsockname(l)
	must(err)
	fd = socket()
	must(unix.Connect(fd, at))
	peer, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	must(err)
	t.Cleanup(func() { _ = unix.Close(peer) })
	must(unix.SetNonblock(fd, true))
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<16))
	}
	must(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	return fd
}
