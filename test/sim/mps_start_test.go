package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestArguments: there is no daemon, so that what is taken for the command line
// cannot find one.
func TestArguments(t *testing.T) {
	const (
		noDaemon = "1 Cannot find MPS control daemon process"
		banner   = "CUDA MPS Control for Linux/Unix."
	)
	tests := []struct {
		args string
		want words // exit code and first line
		from string
	}{
		{"-h", same("0 " + banner), "measured"},
		{"--help", same("0 " + banner), "measured"},
		{"", same(noDaemon), "measured"},
		{"-x", words{noDaemon, noDaemon, "1 " + banner}, "measured"},
		{"get_server_list", words{noDaemon, noDaemon, "1 " + banner}, "measured"},
		{"-d -x", words{noDaemon, noDaemon, "1 " + banner}, "measured"},
		{"-fd", words{noDaemon, noDaemon, "1 " + banner}, "here"},
		{"-d -h", words{noDaemon, noDaemon, "1 " + banner}, "here"},
		{"-multiuser-server", same(noDaemon), "measured"},
		{"-p 3", words{noDaemon, noDaemon, "1 " + banner}, "measured: R615's flag"},
		{"-S", words{noDaemon, noDaemon, "1 " + banner}, "measured: R590's flag"},
	}
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		for _, tt := range tests {
			c := b.callWith(l.control, cliLimit, 0, "", strings.Fields(tt.args)...)
			first, _, _ := strings.Cut(c.out+c.err, "\n")
			if got := fmt.Sprint(c.rc, " ", first); got != tt.want[l.branch] {
				t.Errorf("%q: %q, want %q (%s)", tt.args, got, tt.want[l.branch], tt.from)
			}
		}
	})
}

// TestMultiuserFlag: older branches take it for the command line.
func TestMultiuserFlag(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "fake")
		for _, flags := range [][]string{{"-multiuser-server", "-d"}, {"-d", "-multiuser-server"}} {
			c := b.callWith(l.control, cliLimit, 0, "", flags...)
			if l.branch < 2 {
				if c.rc != 1 || c.err != "Cannot find MPS control daemon process\n" {
					t.Errorf("%q: %+v", flags, c)
				}
				continue
			}
			owner := b.lockOwner()
			if c.rc != 0 || owner == 0 {
				t.Fatalf("%q: %+v, lock owner %d", flags, c, owner)
			}
			t.Cleanup(func() { endSession(sessionOf(owner)) })
			b.ask("start_server -uid 1000")
			pid := b.theServer("")
			if got := uidOf(t, pid); got != 0 {
				t.Errorf("a server for 1000 runs as %d, want 0: one root server for all", got)
			}
			b.ask("start_server -uid 1001")
			if again := b.theServer(""); again != pid {
				t.Errorf("server %d was replaced by %d", pid, again)
			}
			args, err := os.ReadFile(filepath.Join(b.servers, "nvidia-cuda-mps-server.args"))
			if !strings.HasSuffix(string(args), "-multiuser-server\n") || err != nil {
				t.Errorf("the server was started with %q, %v (here)", args, err)
			}
			endSession(sessionOf(owner))
			b.until("the lock is free", func() bool { return b.lockOwner() == 0 })
		}
		c := b.callWith(l.control, cliLimit, 1000, "", "-d", "-multiuser-server")
		lines := strings.Split(strings.TrimSpace(c.out), "\n")
		if l.branch == 2 && (c.rc != 1 || lines[len(lines)-1] != "Only root user may enable -multiuser-server!") {
			t.Errorf("as 1000: %+v", c)
		}
	})
}

func sessionOf(pid int) int {
	f := statFields(pid)
	if len(f) < 4 {
		return -1
	}
	session, _ := strconv.Atoi(f[3])
	return session
}

func uidOf(t *testing.T, pid int) int {
	t.Helper()
	st, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

// background starts the daemon with -d, which must return, and has it ended
// with the test.
func (b *bench) background() called {
	b.t.Helper()
	c := b.callWith(b.leg.control, cliLimit, 0, "", "-d")
	if owner := b.lockOwner(); owner != 0 {
		session := sessionOf(owner)
		b.t.Cleanup(func() { endSession(session) })
	}
	return c
}

// TestBackground: -d returns when commands work, leaves a daemon
// with a session of its own, and logs into files.
func TestBackground(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		for range 10 {
			if c := b.background(); c != (called{}) {
				t.Fatalf("-d: %+v", c)
			}
			if got := b.ask("get_default_active_thread_percentage"); got != "100.0" {
				t.Fatalf("at once: %q", got)
			}
			owner := b.lockOwner()
			if f := statFields(owner); len(f) < 4 || f[1] == strconv.Itoa(os.Getpid()) || f[3] != strconv.Itoa(owner) {
				t.Errorf("daemon %d: parent %s, session %s: want two forks and a session of its own", owner, f[1], f[3])
			}
			b.ask("quit")
			b.until("the daemon is gone", func() bool { return gone(owner) })
		}
		got := []string{mode(t, b.logs), mode(t, filepath.Join(b.logs, "control.log")), mode(t, filepath.Join(b.logs, "server.log"))}
		if diff := cmp.Diff([]string{"l drwx------", "control.log -rw-r--r--", "server.log -rw-r--r--"}, got); diff != "" {
			t.Errorf("log directory (-want +got):\n%s", diff)
		}
		log, err := os.ReadFile(filepath.Join(b.logs, "control.log"))
		if n := strings.Count(string(log), "Exit with status 0\n"); n != 10 || err != nil {
			t.Errorf("control.log tells of %d ends, %v: it is appended to", n, err)
		}
	})
}

// TestSecondDaemon: one pipe directory has one daemon.
func TestSecondDaemon(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		for _, flag := range []string{"-d", "-f"} {
			want := called{"An instance of this daemon is already running\n", "", 1}
			if c := b.callWith(l.control, cliLimit, 0, "", flag); c != want {
				t.Errorf("%s: %+v, want %+v", flag, c, want)
			}
		}
		if got := b.ask("get_server_list"); got != "" || b.lockOwner() != b.pid() {
			t.Errorf("the first one suffers: %q, lock owner %d", got, b.lockOwner())
		}
		// Without the lock file a second one takes the sockets away.
		if err := os.Remove(filepath.Join(b.pipe, "control_lock")); err != nil {
			t.Fatal(err)
		}
		if c := b.background(); c.rc != 0 {
			t.Fatalf("without control_lock: %+v", c)
		}
		b.ask("set_default_active_thread_percentage 50")
		if owner := b.lockOwner(); owner == b.pid() || owner == 0 || gone(b.pid()) {
			t.Errorf("lock owner %d, first daemon %d: want another, and the first an orphan", owner, b.pid())
		}
	})
}

// TestStalePIDFile: it is written without truncation.
func TestStalePIDFile(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		if err := os.Mkdir(b.pipe, 0o755); err != nil {
			t.Fatal(err)
		}
		file := writeFile(t, filepath.Join(b.pipe, "nvidia-cuda-mps-control.pid"), "123456789", 0o666)
		b.start().ask("get_server_list") // the file is written after the daemon listens, and before it answers
		const stale = "123456789"
		want := stale
		if pid := strconv.Itoa(b.pid()); l.branch > 0 {
			want = pid + stale[len(pid):]
		}
		if got, err := os.ReadFile(file); string(got) != want || err != nil {
			t.Errorf("pid file %q, %v; want %q", got, err, want)
		}
		if got := mode(t, b.pipe); got != "p drwxr-xr-x" {
			t.Errorf("%s: a prepared directory keeps its mode", got)
		}
	})
}

// TestPipeDirectory: lengths and places. left is what the pipe
// directory holds when the start failed.
func TestPipeDirectory(t *testing.T) {
	long := func(n int) func(string) string {
		return func(dir string) string { return filepath.Join(dir, strings.Repeat("x", n-len(dir)-1)) }
	}
	tests := []struct {
		name string
		path func(dir string) string
		want called
		left string
	}{
		{"87 bytes", long(87), called{}, ""},
		{"88 bytes", long(88), called{"", "", 1}, "control_lock log"},
		{"trailing slash", func(dir string) string { return dir + "/x/" }, called{}, ""},
		{"relative", func(dir string) string { return filepath.Join("..", dir) + "/x" }, called{}, ""},
		{"missing parent", func(dir string) string { return dir + "/x/y" }, called{"Cannot access CUDA_MPS_PIPE_DIRECTORY=%s\n", "", 1}, ""},
		{"a file", func(string) string { return "/etc/passwd" }, called{"Cannot access CUDA_MPS_PIPE_DIRECTORY=%s\n", "", 1}, ""},
	}
	onEachLeg(t, func(t *testing.T, l leg) {
		for _, tt := range tests {
			b := newBench(t, l, "none")
			b.pipe = tt.path(b.dir)
			b.env = append(b.env, "CUDA_MPS_PIPE_DIRECTORY="+b.pipe)
			want := tt.want
			if strings.Contains(want.out, "%s") {
				want.out = fmt.Sprintf(want.out, b.pipe)
			}
			if got := b.background(); got != want {
				t.Errorf("%s: %+v, want %+v", tt.name, got, want)
			}
			if want.rc == 0 && b.ask("get_default_active_thread_percentage") != "100.0" {
				t.Errorf("%s: no answer", tt.name)
			}
			if tt.left != "" && strings.Join(b.files(), " ") != tt.left {
				t.Errorf("%s: left %q, want %q", tt.name, b.files(), tt.left)
			}
		}
	})
}

// TestLogDirectory: no log is no reason to fail.
func TestLogDirectory(t *testing.T) {
	const warning = "Warning: Failed writing log files to directory [%s]. No logs will be available.\n"
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		missing := filepath.Join(b.dir, "x/y")
		b.env = append(b.env, "CUDA_MPS_LOG_DIRECTORY="+missing)
		if got, want := b.background(), (called{fmt.Sprintf(warning, missing), "", 0}); got != want {
			t.Errorf("missing: %+v, want %+v", got, want)
		}
		b = newBench(t, l, "none")
		b.env = append(b.env, "CUDA_MPS_LOG_DIRECTORY=/etc/passwd")
		if got := b.background(); got != (called{}) {
			t.Errorf("a file: %+v, want no word", got)
		}
		if _, err := os.Stat(filepath.Join(b.pipe, "log")); err == nil {
			t.Error("a file: there is a FIFO, want none")
		}
		if got := b.ask("get_server_list"); got != "" {
			t.Errorf("without a log: %q", got)
		}
	})
}

// TestEnvironment: what the daemon takes from its environment.
func TestEnvironment(t *testing.T) {
	tests := []struct{ env, command, want string }{
		{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "get_default_active_thread_percentage", "40.0"},
		{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=400", "get_default_active_thread_percentage", "100.0"},
		{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=abc", "get_default_active_thread_percentage", "100.0"},
		{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G", "get_default_device_pinned_mem_limit 0", ""},
		{"CUDA_MPS_CLIENT_PRIORITY=1", "get_default_client_priority", "1"},
		{"CUDA_MPS_CLIENT_PRIORITY=7", "get_default_client_priority", "0"},
		{"CUDA_VISIBLE_DEVICES=GPU-aaaa", "get_server_list", ""},
	}
	onEachLeg(t, func(t *testing.T, l leg) {
		for _, tt := range tests {
			b := newBench(t, l, "none", tt.env).start()
			if got := b.ask(tt.command); got != tt.want {
				t.Errorf("%s: %s: %q, want %q", tt.env, tt.command, got, tt.want)
			}
		}
	})
}
