package room

import (
	"net"
	"testing"
)

// TestUnsent: what the other end has not read is unsent. Of a socket that is closed, or was never open, nothing is.
func TestUnsent(t *testing.T) {
	l, err := net.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	is := func(when string, c net.Conn, want bool) {
		t.Helper()
		if got := Unsent(c.(*net.UnixConn)); got != want {
			t.Errorf("%s: %t", when, got)
		}
	}
	is("nothing was written", c, false)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	is("it is not read", c, true)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	is("it is closed", c, false)
	is("it was never open", &net.UnixConn{}, false)
}
