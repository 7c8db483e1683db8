package sim

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSignals: every signal ends the daemon at once, nothing is
// cleaned up or logged, and the next one starts over what is left.
func TestSignals(t *testing.T) {
	// What this process ignores (a background job: SIGINT; nohup: SIGHUP) the
	// daemon would ignore too; what it catches, the daemon has by default.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT)
	t.Cleanup(func() { signal.Stop(caught) })
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
			b.start()
			b.ask("get_server_list")
			b.settle(nil)
			left := b.files()
			if err := syscall.Kill(b.pid(), sig); err != nil {
				t.Fatal(err)
			}
			b.exit()
			if got := b.cmd.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != sig {
				t.Errorf("%v: it ended with %v", sig, b.cmd.ProcessState)
			}
			if got := b.newLog(nil); len(got) != 0 {
				t.Errorf("%v: it logged %q", sig, got)
			}
			if diff := cmp.Diff(left, b.files()); diff != "" {
				t.Errorf("%v: files (-before +after):\n%s", sig, diff)
			}
			if b.lockOwner() != 0 {
				t.Errorf("%v: the lock is held", sig)
			}
		}
	})
}

// TestStopped: SIGSTOP hangs callers until SIGCONT.
func TestStopped(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		_ = syscall.Kill(b.pid(), syscall.SIGSTOP)
		b.until("it is stopped", func() bool { f := statFields(b.pid()); return len(f) > 0 && f[0] == "T" })
		if c := b.callWith(l.control, 300*time.Millisecond, 0, "get_server_list\n"); c.rc != -1 {
			t.Errorf("stopped: %+v, want no answer", c)
		}
		if b.lockOwner() != b.pid() {
			t.Errorf("stopped: lock owner %d", b.lockOwner())
		}
		_ = syscall.Kill(b.pid(), syscall.SIGCONT)
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("going on: %q", got)
		}
	})
}

// TestQuit: what quit leaves, and the daemon's status, which
// is that of a server that failed (the real server's is always 1).
func TestQuit(t *testing.T) {
	tests := []struct {
		name, server string
		env          []string
		before       func(b *bench)
		quit         string
		status       int
	}{
		{"no server", "none", nil, func(*bench) {}, "quit", 0},
		{"junk", "none", nil, func(*bench) {}, "quit any junk", 0},
		{"failed server", "fake", []string{"FAKE_EXIT=3"}, func(b *bench) { b.fails() }, "quit", 3},
		{"no server on PATH", "none", nil, func(b *bench) { b.fails() }, "quit", 1},
		{"killed server", "fake", nil, func(b *bench) { b.killServer(b.server(os.Geteuid(), "")) }, "quit", 0},
		{"forced, not ready", "fake", nil, func(b *bench) { b.server(os.Geteuid(), "") }, "quit -t 0", 0},
		{"ready", "sim", nil, func(b *bench) { b.server(os.Geteuid(), "ACTIVE") }, "quit", 0},
		{"ready, with a time", "sim", nil, func(b *bench) { b.server(os.Geteuid(), "ACTIVE") }, "quit -t 5", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onEachLeg(t, func(t *testing.T, l leg) {
				b := newBench(t, l, tt.server, tt.env...).start()
				tt.before(b)
				// The command line's own status proves nothing.
				if c := b.callWith(l.control, cliLimit, 0, tt.quit+"\n"); c.rc < 0 || c.out != "" {
					t.Errorf("%s: %+v", tt.quit, c)
				}
				if got := b.exit(); got != tt.status {
					t.Errorf("the daemon exits with %d, want %d", got, tt.status)
				}
				if want := fmt.Sprintf("Exit with status %d\n", tt.status); !strings.HasSuffix(b.output(), want) {
					t.Errorf("the log does not end with %q:\n%s", want, b.output())
				}
				if left := b.files(); !slices.Equal(left, []string{"control", "control_lock", "control_privileged"}) {
					t.Errorf("left: %q", left)
				}
			})
		})
	}
}

// fails starts a server that fails, and waits until the daemon knows.
func (b *bench) fails() {
	b.t.Helper()
	b.ask(fmt.Sprint("start_server -uid ", os.Geteuid()))
	b.until("the server fails", func() bool { return strings.Contains(b.output(), "exited with status") })
}

func (b *bench) killServer(pid int) {
	b.t.Helper()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	b.until("the daemon sees the end", func() bool { return b.ask("get_server_list") == "" })
}

// TestServerEnds: what the log says of every end.
func TestServerEnds(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		ends := func(b *bench, kill func(pid int)) []string {
			pid := b.server(os.Geteuid(), "")
			names := map[int]string{b.pid(): "D", pid: "S"}
			b.settle(names)
			kill(pid)
			b.until("the log tells of the end", func() bool { return strings.Contains(b.output()[b.said:], "Removed Shm file") })
			return slices.DeleteFunc(b.settle(names), func(line string) bool { return strings.Contains(line, "get_server") })
		}
		ended := func(status string) []string {
			return []string{"Control D: Server S exited with status " + status, "Control D: Removed Shm file at "}
		}
		b := newBench(t, l, "fake").start()
		if diff := cmp.Diff(ended("0"), ends(b, func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) })); diff != "" {
			t.Errorf("killed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(ended("0"), ends(b, func(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) })); diff != "" {
			t.Errorf("exit 0 (-want +got):\n%s", diff)
		}
		forced := append([]string{"Control D: Cmd:shutdown_server S -f"}, ended("0")...)
		if l.branch > 0 {
			forced = slices.Insert(forced, 1, "Control D: Force shutting down server S")
		}
		got := ends(b, b.force)
		if diff := cmp.Diff(forced, got); diff != "" {
			t.Errorf("forced (-want +got):\n%s", diff)
		}
	})
}

// TestForcedStop: one SIGINT and nothing else. quit then hangs;
// whoever comes beside it is sent away, whoever comes after it hangs, too.
func TestForcedStop(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "fake", "FAKE_STUBBORN=1").start()
		pid := b.server(os.Geteuid(), "")
		b.force(pid)
		quit, _ := b.inside("quit -t 0\n")
		b.until("it quits", func() bool { return strings.Contains(b.output(), "quit command issued with timeout of 0") })
		if c := b.callWith(l.control, cliLimit, 0, "get_server_list\n"); !unserved[c] {
			t.Errorf("beside quit: %+v, want to be sent away", c)
		}
		_ = quit.Process.Kill()
		_ = quit.Wait()
		b.until("the daemon sees that quit's caller is gone", func() bool { return strings.HasSuffix(b.output(), "UI closed\n") })
		if c := b.callWith(l.control, 300*time.Millisecond, 0, "get_server_list\n"); c.rc != -1 {
			t.Errorf("after quit: %+v, want it to hang", c)
		}
		if gone(pid) {
			t.Error("the server is gone, though it survives a SIGINT")
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if got := b.exit(); got != 0 {
			t.Errorf("the daemon exits with %d", got)
		}
	})
}

// inside is a command line that the daemon has let in; it has sent the script.
func (b *bench) inside(script string) (*exec.Cmd, io.Closer) {
	b.t.Helper()
	cmd := exec.Command(b.leg.control)
	cmd.Env = b.env
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	before := strings.Count(b.output(), "NEW UI")
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill() })
	b.until("it is in", func() bool { return strings.Count(b.output(), "NEW UI") > before })
	if _, err := io.WriteString(in, script); err != nil {
		b.t.Fatal(err)
	}
	return cmd, in
}

// TestOrphans: servers survive their daemon, unknown to the next.
func TestOrphans(t *testing.T) {
	for _, server := range []string{"fake", "sim"} {
		t.Run(server, func(t *testing.T) {
			onEachLeg(t, func(t *testing.T, l leg) {
				b := newBench(t, l, server).start()
				status := map[string]string{"fake": "", "sim": "ACTIVE"}[server]
				pid := b.server(os.Geteuid(), status)
				_ = syscall.Kill(b.pid(), syscall.SIGKILL)
				b.exit()
				b.start()
				if got := b.ask("get_server_list"); got != "" || gone(pid) {
					t.Errorf("the next daemon lists %q, server %d gone: %v", got, pid, gone(pid))
				}
			})
		})
	}
}

// TestPendingAccount: another account's server starts by
// itself when the current one is gone.
func TestPendingAccount(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "fake").start()
		first := b.server(0, "")
		b.ask("start_server -uid 1000")
		if again := b.theServer(""); again != first {
			t.Errorf("server %d was replaced by %d at once", first, again)
		}
		_ = syscall.Kill(first, syscall.SIGKILL)
		var second int
		b.until("the next server starts", func() bool { second = b.theServer(""); return second != first })
		if got := uidOf(t, second); got != 1000 {
			t.Errorf("the next server runs as %d, want 1000", got)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", second))
		if err != nil || !strings.Contains(string(status), "\nGid:\t0\t0\t0\t0\n") {
			t.Errorf("its group is not the daemon's: %v\n%s", err, status)
		}
		// A ready one is asked to go, and goes.
		b = newBench(t, l, "sim").start()
		first = b.server(0, "ACTIVE")
		b.ask("start_server -uid 1000")
		b.until("the next server starts", func() bool { second = b.theServer("ACTIVE"); return second != first })
		if got := uidOf(t, second); got != 1000 {
			t.Errorf("ready: the next server runs as %d, want 1000", got)
		}
	})
}

// TestPrivatePipe: without the right to traverse there is no daemon.
func TestPrivatePipe(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		want := called{"", "Cannot find MPS control daemon process\n", 1}
		if got := b.call(1000, "get_default_active_thread_percentage\n"); got != (called{"100.0\n", "", 0}) {
			t.Errorf("open to all: %+v", got)
		}
		for _, change := range []struct {
			name string
			mode os.FileMode
		}{{"control", 0o600}, {"", 0o750}} {
			if err := os.Chmod(filepath.Join(b.pipe, change.name), change.mode); err != nil {
				t.Fatal(err)
			}
			if got := b.call(1000, "get_server_list\n"); got != want {
				t.Errorf("%q %o: %+v, want %+v", change.name, change.mode, got, want)
			}
		}
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("as root: %q", got)
		}
	})
}

// TestNonRootDaemon: it belongs to its account and to root.
func TestNonRootDaemon(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "fake")
		if err := os.Chown(b.dir, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		if c := b.callWith(l.control, cliLimit, 1000, "", "-d"); c.rc != 0 {
			t.Fatalf("-d: %+v", c)
		}
		session := sessionOf(b.lockOwner())
		t.Cleanup(func() { endSession(session) })
		for _, uid := range []int{0, 1000} {
			if got := b.call(uid, "set_default_active_thread_percentage 50\n"); got != (called{"50.0\n", "", 0}) {
				t.Errorf("as %d: %+v", uid, got)
			}
		}
		if got := b.call(1001, "quit\n"); got.out != "Not enough privilege to execute quit command\n" || got.rc != 0 {
			t.Errorf("quit as 1001: %+v", got)
		}
		if c := b.call(1000, "start_server -uid 1000\n"); c.out != "" || uidOf(t, b.theServer("")) != 1000 {
			t.Errorf("own server: %+v", c)
		}
	})
}
