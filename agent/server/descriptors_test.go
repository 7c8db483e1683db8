package server

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoDescriptors: a caller can send no open file.
func TestNoDescriptors(t *testing.T) {
	n := newNode(t, unchanged)
	if _, err := n.raw(askNode); err != nil { // it serves by then
		t.Fatal(err)
	}
	c, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	of, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte("{"), unix.UnixRights(int(of.Fd())), nil)
	probe, no := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if no != nil {
		t.Fatal(no)
	}
	defer unix.Close(probe)
	if no := unix.SetsockoptInt(probe, unix.SOL_SOCKET, soPassRights, 0); errors.Is(no, unix.ENOPROTOOPT) {
		t.Skip("this kernel has no SO_PASSRIGHTS, which came with Linux 6.16")
	}
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("a caller sends an open file: %v", err)
	}
}
