package sim

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestContention: of many callers at a time few are served; the
// others see rc 1 and a sentence, or rc 0 and nothing at all. A served caller
// is told by the end marker.
func TestContention(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		var wg sync.WaitGroup
		results := make([]called, 40)
		for i := range results {
			wg.Go(func() {
				results[i] = b.callWith(l.control, cliLimit, 0, fmt.Sprintf("get_default_active_thread_percentage\neof-%d\n", i))
			})
		}
		wg.Wait()
		served := 0
		for i, c := range results {
			switch whole := fmt.Sprintf("100.0\nUnknown command \"eof-%d\"\n", i); {
			case c.out == whole:
				served++
			case !unserved[c]:
				t.Errorf("caller %d: %+v", i, c)
			}
		}
		if served == 0 {
			t.Error("nobody was served")
		}
	})
}

// unserved is what a caller sees that was not served: which, is a race between
// its two threads, also in the real one.
var unserved = map[called]bool{
	{"", "Cannot send command to MPS control daemon process\n", 1}: true,
	{"", "Cannot send command to MPS control daemon process\n", 0}: true,
	{"", "", 1}: true,
	{"", "", 0}: true,
}

// TestOneConnection: an idle command line keeps everybody out, root's
// quit included.
func TestOneConnection(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		idle := exec.Command(l.control)
		idle.Env = b.env
		in, err := idle.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		idle.Stdout = &out
		if err := idle.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Process.Kill() })
		b.until("the idle one is in", func() bool { return strings.Contains(b.output(), "NEW UI") })
		for range 20 {
			if c := b.callWith(l.control, cliLimit, 0, "quit\n"); !unserved[c] {
				t.Errorf("beside an idle one: %+v", c)
			}
		}
		if _, err := io.WriteString(in, "get_default_active_thread_percentage\n"); err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		if err := idle.Wait(); err != nil || out.String() != "100.0\n" {
			t.Errorf("the idle one: %q, %v", out.String(), err)
		}
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

// TestSilentConnection: who connects and says nothing stalls it.
func TestSilentConnection(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		conn, err := net.Dial("unixpacket", filepath.Join(b.pipe, "control"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		b.until("it is taken", func() bool { return strings.Contains(b.output(), "Accepting connection...") })
		if c := b.callWith(l.control, 300*time.Millisecond, 0, "get_server_list\n"); c.rc != -1 {
			t.Errorf("beside a silent connection: %+v, want it to hang", c)
		}
		_ = conn.Close()
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("afterwards: %q", got)
		}
		// The recorder writes when it likes.
		b.until("the log tells", func() bool { return strings.Contains(b.output(), "Unable to accept connection") })
	})
}

// TestJunkInTheLog: junk in the FIFO ends the log, and a full FIFO
// hangs the daemon; SIGTERM still works.
func TestJunkInTheLog(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		fifo, err := os.OpenFile(filepath.Join(b.pipe, "log"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer fifo.Close()
		junk := strings.Repeat("junk", 256)
		if _, err := fifo.WriteString(junk); err != nil {
			t.Fatal(err)
		}
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("with junk: %q", got)
		}
		if strings.Contains(b.output(), "Cmd:") {
			t.Errorf("it still logs: %s", b.output())
		}
		// Into the pipe as much as goes: large pieces, then small ones.
		for _, size := range []int{len(junk), 1} {
			for full := false; !full; {
				_, err := syscall.Write(int(fifo.Fd()), []byte(junk[:size]))
				full = err != nil
			}
		}
		if c := b.callWith(l.control, 300*time.Millisecond, 0, "quit\n"); c.rc != -1 {
			t.Errorf("with a full FIFO: %+v, want it to hang", c)
		}
		_ = syscall.Kill(b.pid(), syscall.SIGTERM)
		b.exit()
	})
}

// TestCallerDies: neither a killed caller nor a killed daemon harms
// the other.
func TestCallerDies(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		cmd, _ := b.inside("")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		b.until("the daemon sees it", func() bool { return strings.HasSuffix(b.output(), "UI closed\n") })
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("after a killed caller: %q", got)
		}
		cmd, in := b.inside("")
		_ = syscall.Kill(b.pid(), syscall.SIGKILL)
		b.exit()
		_ = in.Close()
		_ = cmd.Wait()
	})
}

// TestLongLines: a line is cut at 4 KiB and becomes two commands; so is a
// reply, whose rest is lost.
func TestLongLines(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		got := b.call(0, strings.Repeat("x", 4095)+"yz\n")
		// A reply is cut, too: the quotation mark is gone.
		want := fmt.Sprintf("%.4096s\nUnknown command %q\n", fmt.Sprintf("Unknown command %q", strings.Repeat("x", 4095)), "yz")
		if got.rc != 0 || got.out != want {
			t.Errorf("%d bytes of output, want %d: %.60q … %.40q", len(got.out), len(want), got.out, got.out[max(0, len(got.out)-40):])
		}
		many := b.call(0, strings.Repeat("get_default_active_thread_percentage\n", 1000))
		if n := strings.Count(many.out, "100.0\n"); n != 1000 {
			t.Errorf("%d replies to 1000 commands in one connection", n)
		}
	})
}

// TestEitherSide: the two command lines, the two daemons and the simulated
// server understand each other.
func TestEitherSide(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		if !l.real {
			t.Skip("the other leg does both")
		}
		ours := leg{branch: l.branch, control: publicCopy(t, filepath.Join(Dir(t), "bin/nvidia-cuda-mps-control"))}
		for _, pair := range []struct{ daemon, cli leg }{{l, ours}, {ours, l}} {
			b := newBench(t, pair.daemon, "sim").start()
			pid := b.server(os.Geteuid(), "ACTIVE")
			script := fmt.Sprintf("get_active_thread_percentage %d\nbogus\nget_client_list 1\n", pid)
			want := called{"100.0\nUnknown command \"bogus\"\nServer 1 not found\n", "", 0}
			if got := b.callWith(pair.cli.control, cliLimit, 0, script); got != want {
				t.Errorf("%v with the command line of %v: %+v, want %+v", pair.daemon, pair.cli, got, want)
			}
		}
	})
}
