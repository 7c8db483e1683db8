package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The conformance suite: what NVIDIA's control daemons of 535, 550 and 555 do
// was measured, and every row here runs against them and against ours.
// "measured" as the evidence means by hand, on the command line; "here" that the
// row was first run for real by this suite, with the simulated server under the real daemon: the two
// speak the measured protocol, so also what needs a ready server is held by
// the real program.

// row is one command and what comes of it. S in command and replies is the
// server's PID, D the daemon's.
type row struct {
	command string
	reply   words
	log     words // what the log says between command and reply; "=": nothing but the reply's lines
	as      int   // account; 0: the daemon's own, root or not
	from    string
}

var eq = same("=")

// noServer: what the commands say while no server runs.
var noServer = []row{
	{"get_server_list", same(""), eq, 0, "measured"},
	{"get_default_active_thread_percentage", same("100.0"), eq, 0, "measured"},
	{"set_default_active_thread_percentage 50", same("50.0"), eq, 0, "measured"},
	{"set_default_active_thread_percentage 33.3", same("33.3"), eq, 0, "measured"},
	{"set_default_active_thread_percentage 12.345", same("12.3"), eq, 0, "measured"},
	{"set_default_active_thread_percentage 1e1", same("10.0"), eq, 0, "measured"},
	{"set_default_active_thread_percentage 0", same("10.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "measured"},
	{"set_default_active_thread_percentage 150", same("10.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "measured"},
	{"set_default_active_thread_percentage abc", same("10.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "measured"},
	{"set_default_active_thread_percentage", same("10.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "measured"},
	{"set_default_active_thread_percentage -5", same("10.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "here"},
	{"set_default_active_thread_percentage 20%", same("20.0"), eq, 0, "here"},
	{"set_default_active_thread_percentage 100", same("100.0"), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same(""), same("No default pinned memory limit set for the device!"), 0, "measured"},
	{"get_default_device_pinned_mem_limit", same(""), same("No default pinned memory limit set for the device!"), 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1024", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit", same("1G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 77X", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("77M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1024K", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("1G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 512MB", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("512M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 3g", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("3G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 512MiB", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("512M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1T", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("1M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 2G", same(""), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1.5G", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("1M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 2G", same(""), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1 G", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("1M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 -5M", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("17179869183G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 0G", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same(""), same("No default pinned memory limit set for the device!"), 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 1500M", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("1G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 0", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same(""), same("No default pinned memory limit set for the device!"), 0, "measured"},
	{"set_default_device_pinned_mem_limit 0 143771M", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same("140G"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 31 500M", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 31", same("500M"), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit 32 500M", same(""), same("Invalid device ordinal!"), 0, "measured"},
	{"get_default_device_pinned_mem_limit 32", same(""), same("Invalid device ordinal!"), 0, "measured"},
	{"set_default_device_pinned_mem_limit -1 500M", same(""), same("Invalid device ordinal!"), 0, "measured"},
	{"get_default_device_pinned_mem_limit -1", same(""), same("Invalid device ordinal!"), 0, "measured"},
	{"set_default_device_pinned_mem_limit GPU-00000000-0000-4000-8000-000000000000 5G", same(""), eq, 0, "measured"},
	{"get_default_device_pinned_mem_limit 0", same(""), same("No default pinned memory limit set for the device!"), 0, "here: it is no number, so it clears device 0"},
	{"set_default_device_pinned_mem_limit 0 1G", same(""), eq, 0, "measured"},
	{"set_default_device_pinned_mem_limit", same(""), eq, 0, "here"},
	{"get_default_device_pinned_mem_limit 0", same(""), same("No default pinned memory limit set for the device!"), 0, "here"},
	{"get_default_client_priority", same("0"), eq, 0, "measured"},
	{"set_default_client_priority 1", same(""), eq, 0, "measured"},
	{"get_default_client_priority", same("1"), eq, 0, "measured"},
	{"set_default_client_priority 2", same("Invalid priority value - must be 0 or 1!"), eq, 0, "measured"},
	{"get_default_client_priority", same("1"), eq, 0, "measured"},
	{"set_default_client_priority abc", same(""), eq, 0, "measured"},
	{"get_default_client_priority", same("0"), eq, 0, "measured"},
	{"set_default_client_priority 1", same(""), eq, 0, "measured"},
	{"set_default_client_priority", same(""), eq, 0, "measured"},
	{"get_default_client_priority", same("0"), eq, 0, "measured"},
	{"ps", same("Server not found"), eq, 0, "measured"},
	{"get_client_list", same("Server 0 not found"), eq, 0, "measured"},
	{"get_client_list 1", same("Server 1 not found"), eq, 0, "measured"},
	{"get_device_client_list", same(""), eq, 0, "measured"},
	{"get_device_client_list 1", same("Server 1 not found"), eq, 0, "measured"},
	{"get_server_status", since550(`Unknown command "get_server_status"`, "A server PID is required"), eq, 0, "measured"},
	{"get_server_status 1", since550(`Unknown command "get_server_status"`, "Server 1 not found"), eq, 0, "measured"},
	{"get_active_thread_percentage 1", same("Server 1 not found"), eq, 0, "measured"},
	{"set_active_thread_percentage 1 50", same("Server 1 not found"), eq, 0, "measured"},
	{"get_device_pinned_mem_limit 1 0", same("Server 1 not found"), eq, 0, "measured"},
	{"set_device_pinned_mem_limit 1 0 1G", same("Server 1 not found"), eq, 0, "measured"},
	{"shutdown_server 1", same("Server 1 not found"), eq, 0, "measured"},
	{"shutdown_server 1 -f", same("Server 1 not found"), eq, 0, "measured"},
	{"terminate_client 1 1", same("Server 1 not found|Server 1 not found!|1"), eq, 0, "measured"},
	{"start_server", same("A user id (UID) is required to start a new server"), eq, 0, "measured"},
	{"start_server -uid abc", same("A user id (UID) is required to start a new server"), eq, 0, "measured"},
	{"bogus", same(`Unknown command "bogus"`), eq, 0, "measured"},
	{"bogus with words", same(`Unknown command "bogus"`), eq, 0, "here"},
	{"GET_SERVER_LIST", same(`Unknown command "GET_SERVER_LIST"`), eq, 0, "measured"},
	{"", same(`Unknown command ""`), eq, 0, "measured"},
	{"  get_server_list", same(""), eq, 0, "here"},
	{"get_server_list and more", same(""), eq, 0, "here"},
}

// notReadyServer: a server that does not connect.
var notReadyServer = []row{
	{"get_server_list", same("S"), eq, 0, "measured"},
	{"get_server_status S", since550(`Unknown command "get_server_status"`, "INITIALIZING"), eq, 0, "measured"},
	{"get_client_list S", same(""), eq, 0, "measured"},
	{"get_device_client_list", same(""), same("Server S is <busy>"), 0, "measured"},
	{"get_device_client_list S", same(""), same("Server S is <busy>"), 0, "measured"},
	{"get_active_thread_percentage S", same(""), same("Server S is <busy>"), 0, "measured"},
	{"set_active_thread_percentage S 40", same(""), same("Server S is <busy>"), 0, "measured"},
	{"get_device_pinned_mem_limit S 0", same(""), same("Server S is <busy>"), 0, "measured"},
	{"set_device_pinned_mem_limit S 0 1G", same(""), same("Server S is <busy>"), 0, "measured"},
	{"ps", same("Server not found"), same("Server S is <busy>"), 0, "measured"},
	{"ps -p S", same("Server S not found|"), same("Server S is <busy>"), 0, "measured"},
	{"terminate_client S 1", same("Server S not found!|1"), same("Server S is <busy>"), 0, "measured"},
	{"start_server -uid 0", same(""), eq, 0, "measured: the same account's server is there"},
	{"get_client_list 1", same("Server 1 not found"), eq, 0, "measured"},
	{"get_server_status 1", since550(`Unknown command "get_server_status"`, "Server 1 not found"), eq, 0, "measured"},
}

// readyServer: a server that connected and has no clients. All measured here.
var readyServer = []row{
	{"get_server_list", same("S"), eq, 0, "here"},
	{"get_server_status S", since550(`Unknown command "get_server_status"`, "ACTIVE"), eq, 0, "here"},
	{"get_client_list S", same(""), eq, 0, "here"},
	{"get_client_list", same("Server 0 not found"), eq, 0, "here"},
	{"get_device_client_list", same("[0] 23:00.0, Tesla V100S-PCIE-32GB"), eq, 0, "here: the bus in decimal, the device number first"},
	{"get_device_client_list S", same("[0] 23:00.0, Tesla V100S-PCIE-32GB"), eq, 0, "here"},
	{"ps", same(""), eq, 0, "here: no table without clients"},
	{"ps -p S", same(""), eq, 0, "here"},
	{"get_active_thread_percentage S", same("75.0"), eq, 0, "here: the default when it was started"},
	{"set_default_active_thread_percentage 50", same("50.0"), eq, 0, "here"},
	{"get_active_thread_percentage S", same("75.0"), eq, 0, "measured: defaults act on future servers"},
	{"set_active_thread_percentage S 90", same("90.0"), eq, 0, "measured: and may exceed the default"},
	{"set_active_thread_percentage S 0", same("90.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "here"},
	{"set_active_thread_percentage S", same("90.0"), same("Invalid percentage, expected between (0.0, 100.0]"), 0, "here"},
	{"get_device_pinned_mem_limit S 0", same("2G"), eq, 0, "here"},
	{"get_device_pinned_mem_limit S", same("2G"), eq, 0, "here"},
	{"set_device_pinned_mem_limit S 0 5000M", same(""), eq, 0, "here"},
	{"get_device_pinned_mem_limit S 0", same("4G"), eq, 0, "here"},
	{"get_default_device_pinned_mem_limit 0", same("2G"), eq, 0, "measured"},
	{"get_device_pinned_mem_limit S 1", same(""), eq, 0, "here"},
	{"get_device_pinned_mem_limit S 40", same(""), same("Invalid device ordinal!"), 0, "here"},
	{"set_device_pinned_mem_limit S 40 1G", same(""), same("Invalid device ordinal!"), 0, "here"},
	{"terminate_client S 999999999", same("Invalid process 999999999!|1"), eq, 0, "here"},
	{"terminate_client S D", same("1"), eq, 0, "here: the server's answer"},
	{"set_default_client_priority 1", same(""), eq, 0, "here: goes to the running server, too"},
	{"get_active_thread_percentage S", same("90.0"), eq, 0, "here"},
	{"start_server -uid 0", same(""), eq, 0, "here"},
}

// strangers: the server is root's, the caller another account.
var strangers = []row{
	{"get_server_list", same("S"), eq, 1000, "measured"},
	{"get_client_list S", same(""), eq, 1000, "measured"},
	{"get_active_thread_percentage S", same("75.0"), eq, 1000, "measured"},
	{"set_default_active_thread_percentage 50", since550("50.0", noDefaults), eq, 1000, "measured"},
	{"set_default_device_pinned_mem_limit 0 1G", since550("", noDefaults), eq, 1000, "measured"},
	{"set_default_client_priority 1", since550("", noDefaults), eq, 1000, "measured"},
	{"set_default_active_thread_percentage abc", since550("50.0", noDefaults), since550("Invalid percentage, expected between (0.0, 100.0]", "="), 1000, "here"},
	{"start_server -uid 1001", since550(refused, refused+". Only the root user may start server for another user."), eq, 1000, "measured"},
	{"shutdown_server S", since550(refused, refused+". Only the root user may shutdown another user's server."), eq, 1000, "measured"},
	{"shutdown_server S -f", since550(refused, refused+". Only the root user may shutdown another user's server."), eq, 1000, "measured"},
	{"set_active_thread_percentage S 40", since550("40.0", noSettings), eq, 1000, "T9, settled here"},
	{"set_device_pinned_mem_limit S 0 5M", since550("", noSettings), eq, 1000, "T9, settled here"},
	{"terminate_client S D", since550("1", noTerminate+"|800"), eq, 1000, "T9, settled here: 535 asks the server"},
	{"get_active_thread_percentage S", words{"40.0", "75.0", "75.0"}, eq, 1000, "T9, settled here"},
	{"quit", same("Not enough privilege to execute quit command"), eq, 1000, "measured"},
	{"get_server_list", same("S"), eq, 0, "measured"},
}

const (
	refused     = "Insufficient privileges for UID 1000"
	noDefaults  = refused + ". Control deamon settings can only be modified by the user started it or by the root user."
	noSettings  = refused + ". Only the root user may change settings for another user's server."
	noTerminate = refused + ". Only the root user may terminate clients on another user's server."
)

// TestCommands holds every row on every leg.
func TestCommands(t *testing.T) {
	tests := []struct {
		name, server, status string
		rows                 []row
	}{
		{"no server", "none", "", noServer},
		{"server not ready", "fake", "INITIALIZING", notReadyServer},
		{"server ready", "sim", "ACTIVE", readyServer},
		{"stranger", "sim", "ACTIVE", strangers},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onEachLeg(t, func(t *testing.T, l leg) {
				b := newBench(t, l, tt.server, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100").start()
				names := map[int]string{b.pid(): "D"}
				if tt.status != "" {
					b.ask("set_default_active_thread_percentage 75")
					b.ask("set_default_device_pinned_mem_limit 0 2G")
					names[b.server(os.Geteuid(), tt.status)] = "S"
					b.until("the start is in the log", func() bool { return strings.Contains(b.output(), "Starting new server") })
				}
				b.settle(names)
				for _, r := range tt.rows {
					b.hold(r, names)
				}
			})
		})
	}
}

// hold holds one row: output, exit status 0, nothing on standard error, and
// what the log says.
func (b *bench) hold(r row, names map[int]string) {
	b.t.Helper()
	if r.as != 0 && os.Geteuid() != 0 {
		return // to be another account needs root
	}
	command, who := r.command, os.Geteuid()
	if who != 0 {
		command = strings.ReplaceAll(command, "-uid 0", fmt.Sprint("-uid ", who))
	}
	for pid, name := range names {
		command = replaceWord(command, name, fmt.Sprint(pid))
	}
	c := b.call(r.as, command+"\n")
	if got := named(bars(c.out), names); got != r.reply[b.leg.branch] || c.rc != 0 || c.err != "" {
		b.t.Errorf("%s: %q (rc %d, %q), want %q (%s)", r.command, got, c.rc, c.err, r.reply[b.leg.branch], r.from)
	}
	if diff := cmp.Diff(b.wantLog(r), b.settle(names)); diff != "" {
		b.t.Errorf("%s: log (-want +got):\n%s", r.command, diff)
	}
}

// settle waits until the log says that every command line has left, and returns
// what the daemon itself wrote since the last look. Servers write when they like.
func (b *bench) settle(names map[int]string) []string {
	b.t.Helper()
	b.until("the log says that the command line has left", func() bool {
		return strings.Contains(b.output(), "To connect") && strings.Count(b.output(), "] UI closed\n") >= b.calls
	})
	return slices.DeleteFunc(b.newLog(names), func(line string) bool { return !strings.HasPrefix(line, "Control ") })
}

// wantLog is the log of a row: the command, what is only logged, the reply. ps
// replies are not logged, and neither are replies of nothing.
func (b *bench) wantLog(r row) []string {
	lines := []string{"Control D: Cmd:" + strings.TrimRight(r.command, "\n")}
	if extra := r.log[b.leg.branch]; extra != "=" {
		lines = append(lines, "Control D: "+extra)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(r.reply[b.leg.branch], "|"), "|") {
		if line != "" {
			lines = append(lines, "Control D: "+line)
		}
	}
	return lines
}

func replaceWord(s, word, by string) string {
	f := strings.Split(s, " ")
	for i := range f {
		if f[i] == word {
			f[i] = by
		}
	}
	return strings.Join(f, " ")
}

// TestNoDaemon: no command is answered, with stale sockets neither.
func TestNoDaemon(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		want := called{"", "Cannot find MPS control daemon process\n", 1}
		if got := b.call(0, "get_server_list\n"); got != want {
			t.Errorf("no directory: %+v, want %+v", got, want)
		}
		b.start()
		b.ask("quit")
		b.exit()
		if left := b.files(); !slices.Equal(left, []string{"control", "control_lock", "control_privileged"}) {
			t.Errorf("left after quit: %q", left)
		}
		if got := b.call(0, "get_server_list\n"); got != want {
			t.Errorf("stale sockets: %+v, want %+v", got, want)
		}
		b.start()
		if got := b.ask("get_server_list"); got != "" {
			t.Errorf("restart over leftovers: %q", got)
		}
	})
}

func (b *bench) files() []string {
	entries, err := os.ReadDir(b.pipe)
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFiles: entries and modes of the pipe directory.
func TestFiles(t *testing.T) {
	want := []string{
		"p drwxrwxrwx", "control Srw-rw-rw-", "control_lock -rw-rw-rw-", "control_privileged Srwxr-xr-x", "log prwxrwxrwx",
		"nvidia-cuda-mps-control.pid -rw-rw-rw-",
	}
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		b.ask("get_server_list") // all files are made when it answers
		got := []string{mode(t, b.pipe)}
		for _, name := range b.files() {
			got = append(got, mode(t, filepath.Join(b.pipe, name)))
		}
		mine := want
		if l.branch == 0 {
			mine = want[:5] // 535 has no pid file
		}
		if diff := cmp.Diff(mine, got); diff != "" {
			t.Errorf("pipe directory (-want +got):\n%s", diff)
		}
		if got := b.lockOwner(); got != b.pid() {
			t.Errorf("control_lock is held by %d, want %d", got, b.pid())
		}
		if st, err := os.Stat(filepath.Join(b.pipe, "control_lock")); err != nil || st.Size() != 0 {
			t.Errorf("control_lock is not empty: %v, %v", st, err)
		}
	})
}

func mode(t *testing.T, path string) string {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(path) + " " + st.Mode().String()
}
