package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeStore is the service manager's side: it reads one message, and makes what was
// sent with it the sockets that a program started next is handed.
type fakeStore struct {
	t    *testing.T
	conn *net.UnixConn
}

func newFakeStore(t *testing.T) fakeStore {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return fakeStore{t, conn}
}

// take reads a message and the listening sockets in it.
func (f fakeStore) take() (string, []net.Listener) {
	f.t.Helper()
	text, rights := make([]byte, 1024), make([]byte, 1024)
	_ = f.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, m, _, _, err := f.conn.ReadMsgUnix(text, rights)
	if err != nil {
		f.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		f.t.Fatal(err)
	}
	var out []net.Listener
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			f.t.Fatal(err)
		}
		for _, fd := range fds {
			file := os.NewFile(uintptr(fd), "stored")
			l, err := net.FileListener(file)
			if err != nil {
				f.t.Fatal(err)
			}
			_ = file.Close()
			f.t.Cleanup(func() { _ = l.Close() })
			out = append(out, l)
		}
	}
	return string(text[:n]), out
}

// name is that of a message which stores a socket.
func (f fakeStore) name(message string) string {
	f.t.Helper()
	name, ok := strings.CutPrefix(message, "FDSTORE=1\nFDNAME=")
	if !ok || strings.ContainsAny(name, ":\n") || len(name) > 255 { // sd_notify(3)
		f.t.Fatalf("sent %q", message)
	}
	return name
}

// TestKeptPort: a port goes from one program to the next without being free between.
func TestKeptPort(t *testing.T) {
	f := newFakeStore(t)
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().String()
	if err := new(Sockets).Keep(address, first); err != nil {
		t.Fatal(err)
	}
	message, stored := f.take()
	name := f.name(message)
	_ = first.Close() // the program ends
	if l, err := net.Listen("tcp", address); err == nil {
		t.Fatal("another process gets the port", l.Close())
	}
	next := &Sockets{byName: map[string][]net.Listener{name: stored, "agent": nil}}
	kept, err := next.Kept(address)
	if err != nil || kept == nil {
		t.Fatalf("the program started next is handed %v, %v", kept, err)
	}
	go func() {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
		}
	}()
	c, err := kept.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, agent := next.byName["agent"]; !agent || len(next.byName) != 1 {
		t.Errorf("left are %v", next.byName)
	}

	// It does not work any more, and its port is to be free.
	if again, err := next.Kept(address); again != nil || err != nil {
		t.Errorf("it is handed out twice: %v, %v", again, err)
	}
	if message, _ := f.take(); message != "FDSTOREREMOVE=1\nFDNAME="+name {
		t.Errorf("sent %q", message)
	}
}

// TestKeptPortOfAnotherAddress: it is free when the configuration names another.
func TestKeptPortOfAnotherAddress(t *testing.T) {
	for _, now := range []string{"127.0.0.1:0", ""} {
		f := newFakeStore(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		old := l.Addr().String()
		next := &Sockets{byName: map[string][]net.Listener{keptName(old): {l}}}
		if kept, err := next.Kept(now); kept != nil || err != nil {
			t.Fatalf("for %q the socket of %s is handed out, %v", now, old, err)
		}
		if message, _ := f.take(); message != "FDSTOREREMOVE=1\nFDNAME="+keptName(old) {
			t.Errorf("sent %q", message)
		}
		again, err := net.Listen("tcp", old)
		if err != nil {
			t.Fatal("its port stays taken:", err)
		}
		_ = again.Close()
	}
}
