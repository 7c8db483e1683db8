package api

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen serves every connection with handle until the test ends.
func listen(t *testing.T, handle func(net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		handlers.Wait()
	})
	return socket
}

// agent answers as a real one does.
func agent(answer func(Request) Reply) func(net.Conn) {
	return func(c net.Conn) {
		req, err := ReadRequest(c)
		reply := Reply{Error: fmt.Sprint(err)}
		if err == nil {
			reply = answer(req)
		}
		_ = WriteReply(c, reply) // a caller that hung up is the caller's business
	}
}

// patient is a context for an answer that comes, however slow the machine is.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestCall(t *testing.T) {
	var got Request
	socket := listen(t, agent(func(r Request) Reply {
		got = r
		return Reply{Grant: &Grant{Environment: map[string]string{"A": "1\n2"}, EnforcedBy: "none"}}
	}))
	job := &Job{ID: "1.0", RequestVRAM: number(4096)}
	reply, err := Call(patient(t), socket, Request{Op: OpPrepare, Job: job})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Request{Version: Version, Op: OpPrepare, Job: job}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Reply{Version: Version, Grant: &Grant{Environment: map[string]string{"A": "1\n2"}, EnforcedBy: "none"}}, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

// An agent that dies in the conversation has a successor on the same socket.
func TestCallOutlivesTheAgent(t *testing.T) {
	var calls atomic.Int32
	ok := agent(func(Request) Reply { return Reply{Grant: &Grant{EnforcedBy: "none"}} })
	socket := listen(t, func(c net.Conn) {
		if calls.Add(1) > retries {
			ok(c)
		}
	})
	reply, err := Call(patient(t), socket, Request{Op: OpPrepare, Job: &Job{}})
	if err != nil || reply.Grant == nil {
		t.Errorf("%+v, %v after %d conversations", reply, err, calls.Load())
	}
}

// A refused job is an answer, not an error.
func TestCallRefusal(t *testing.T) {
	socket := listen(t, agent(func(Request) Reply { return Reply{Refusal: Refuse(CodeNoRequest, "why")} }))
	reply, err := Call(patient(t), socket, Request{Op: OpPrepare, Job: &Job{}})
	if err != nil || reply.Refusal == nil || reply.Refusal.Code != CodeNoRequest {
		t.Errorf("%+v, %v", reply, err)
	}
}

func TestCallErrors(t *testing.T) {
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = ReadRequest(c)
			_, _ = c.Write([]byte(text))
		}
	}
	for name, c := range map[string]struct {
		handle func(net.Conn)
		want   string
	}{
		"refuses the request":    {agent(func(Request) Reply { return Reply{Error: "you are in no slot"} }), "gpuslotd refuses the request: you are in no slot"},
		"another version":        {says(`{"v":7}` + "\n"), "speaks protocol version 7, this program 1; install the same version"},
		"hangs up":               {func(net.Conn) {}, "hung up without an answer"},
		"hangs up in the middle": {says(`{"v":1,`), "hung up without an answer"},
		"says rubbish":           {says("HTTP/1.1 400 Bad Request\r\n\r\n"), "the answer is not gpuslotd's"},
		"never stops":            {says(strings.Repeat("x", maxReply+1)), "is not gpuslotd's: it is longer than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Call(patient(t), listen(t, c.handle), Request{Op: OpMonitor})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestCallNobody(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		filepath.Join(dir, "none"):             "start it: systemctl enable --now gpuslotd",
		stale:                                  "start it: systemctl restart gpuslotd.socket",
		file:                                   "no process listens",
		dir + "/" + strings.Repeat("long", 40): "look at: systemctl status gpuslotd",
	} {
		_, err := Call(t.Context(), socket, Request{Op: OpMonitor})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", socket, err, want)
		}
	}
}

func TestCallSilent(t *testing.T) {
	release := make(chan struct{})
	socket := listen(t, func(net.Conn) { <-release })
	t.Cleanup(func() { close(release) }) // before the listener's own clean-up waits
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Call(ctx, socket, Request{Op: OpMonitor})
	if err == nil || !strings.Contains(err.Error(), "did not answer within") {
		t.Errorf("error %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Call(ctx, socket, Request{Op: OpMonitor}); err == nil || !strings.Contains(err.Error(), "was cancelled") {
		t.Errorf("error %v", err)
	}
}

// TestBounded: a call without a deadline gets one, and one with a deadline keeps it.
func TestBounded(t *testing.T) {
	own, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	want, _ := own.Deadline()
	ctx, cancel := bounded(own)
	defer cancel()
	if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
		t.Errorf("the deadline %s became %s", want, got)
	}
	ctx, cancel = bounded(t.Context())
	defer cancel()
	if _, ok := ctx.Deadline(); !ok {
		t.Error("a call may wait for ever")
	}
}

// A refusal that was written before all of a large request was read must
// reach the caller, who cannot send the rest any more.
func TestCallIsToldOfTooMuch(t *testing.T) {
	socket := listen(t, agent(func(Request) Reply { return Reply{} }))
	big := &Job{ID: strings.Repeat("x", 4*MaxRequest)}
	_, err := Call(patient(t), socket, Request{Op: OpPrepare, Job: big})
	if err == nil || !strings.Contains(err.Error(), "longer than 262144 bytes") {
		t.Errorf("error %v", err)
	}
}

// With a full queue the kernel refuses at once; callers must wait, not fail.
func TestCallWaitsForRoomInTheQueue(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil { // room for one
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	const callers = 16
	results := make(chan error, callers)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range callers {
		go func() {
			_, err := Call(ctx, socket, Request{Op: OpMonitor})
			results <- err
		}()
	}
	// Only now does anybody accept: one queued connection shows that the queue
	// was full for the others.
	var served sync.WaitGroup
	for range callers {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() {
			defer c.Close()
			agent(func(Request) Reply { return Reply{} })(c)
		})
	}
	for range callers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	served.Wait()
	l.Close()
}

// Whatever answers, Call returns one line of error or a reply of our version.
func FuzzReply(f *testing.F) {
	for _, s := range []string{`{"v":1}`, `{"v":1,"error":"x"}`, `{"v":1,"grant":{"environment":{"A":"1"}}}`, "", "\n", `{"v":1,"status":null}`} {
		f.Add([]byte(s + "\n"))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			_, _ = ReadRequest(server)
			_, _ = server.Write(answer)
		}()
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		reply, err := exchange(ctx, client, Request{Op: OpMonitor})
		if err == nil {
			err = reply.check()
		}
		if err == nil && (reply.Version != Version || reply.Error != "") {
			t.Fatalf("%q is taken for an answer: %+v", answer, reply)
		}
		if !bytes.Contains(answer, []byte("\n")) && err == nil {
			t.Fatalf("%q has no end and is taken for an answer", answer)
		}
	})
}
