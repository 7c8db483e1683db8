package sim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What needs clients. They are simguest, the server is the simulated one, the
// daemon is either: so the real daemons hold also what they do between the two.

// guest is one simguest.
type guest struct {
	b     *bench
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed at the end of its output
}

// guest starts a client as an account (0: our own).
func (b *bench) guest(uid int) *guest {
	b.t.Helper()
	cmd := exec.Command(filepath.Join(b.servers, "simguest"), b.pipe)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = b.env, "/", account(uid)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	g := &guest{b: b, cmd: cmd, in: in, lines: make(chan string, 100)}
	go func() {
		defer close(g.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			g.lines <- s.Text()
		}
	}()
	b.t.Cleanup(func() { g.kill() })
	return g
}

// line is the next line of output; "" at its end.
func (g *guest) line() string {
	g.b.t.Helper()
	select {
	case l := <-g.lines:
		return l
	case <-time.After(patience):
		g.b.t.Fatalf("the client says nothing; the daemon said:\n%s", g.b.output())
		return ""
	}
}

// do gives it one word and returns its answer.
func (g *guest) do(word string) string {
	g.b.t.Helper()
	if _, err := io.WriteString(g.in, word+"\n"); err != nil {
		g.b.t.Fatal(err)
	}
	return g.line()
}

// waits tells whether it is still waiting in attach.
func (g *guest) waits() bool {
	select {
	case l := <-g.lines:
		g.b.t.Logf("not waiting: %q", l)
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

func (g *guest) pid() int { return g.cmd.Process.Pid }

func (g *guest) kill() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

// leave ends it in order.
func (g *guest) leave() {
	_ = g.in.Close()
	_ = g.cmd.Wait()
}

// attached is a client that is in; the rest of its first line is returned, too.
func (b *bench) attached(uid int) (*guest, string) {
	b.t.Helper()
	g := b.guest(uid)
	l := g.line()
	rest, ok := strings.CutPrefix(l, "attached ")
	if !ok {
		b.t.Fatalf("a client as %d: %q; the daemon said:\n%s", uid, l, b.output())
	}
	return g, rest
}

// server of an attached client, by its first line.
func serverOf(line string) int {
	var pid int
	_, _ = fmt.Sscan(line, &pid)
	return pid
}

// status is what the daemon says of a server; 535 cannot say.
func (b *bench) status(pid int) string {
	b.t.Helper()
	return b.ask(fmt.Sprint("get_server_status ", pid))
}

// TestAttach: who attaches, what it is given, what the log says.
func TestAttach(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim")
		if got := b.guest(0).line(); got != "absent" {
			t.Errorf("no daemon: %q, want plain CUDA", got)
		}
		b.start()
		b.ask("set_default_active_thread_percentage 33.3")
		b.ask("set_default_device_pinned_mem_limit 0 1500M")
		b.ask("set_default_client_priority 1")
		b.settle(nil)
		first, got := b.attached(0)
		server := serverOf(got)
		names := map[int]string{b.pid(): "D", server: "S", first.pid(): "C1"}
		if want := fmt.Sprintf("%d 33.30 1 %d", server, 1500<<20); got != want {
			t.Errorf("attached %q, want %q", got, want)
		}
		second, _ := b.attached(0)
		names[second.pid()] = "C2"
		b.ask("get_server_list")
		me := os.Geteuid()
		want := []string{
			fmt.Sprintf("Control D: NEW CLIENT C1 from user %d: Server is not ready, push client to pending list", me),
			fmt.Sprintf("Control S: Starting new server S for user %d", me),
			"Control D: NEW SERVER S: Ready",
			fmt.Sprintf("Control D: NEW CLIENT C2 from user %d: Server already exists", me),
			"Control D: Cmd:get_server_list", "Control D: S",
		}
		if l.branch == 0 {
			want[1] = strings.Replace(want[1], "Control S", "Control D", 1)
		}
		if diff := cmp.Diff(want, b.settle(names)); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if got := named(b.ask(fmt.Sprint("get_client_list ", server)), names); got != "C1|C2" {
			t.Errorf("clients: %q", got)
		}
		b.holdTables(server, names)
		second.leave()
		b.until("a client that left is out", func() bool { return named(b.ask(fmt.Sprint("get_client_list ", server)), names) == "C1" })
		first.kill()
		b.until("a client that was killed is out", func() bool { return b.ask(fmt.Sprint("get_client_list ", server)) == "" })
		if got := b.theServer(""); got != server {
			t.Errorf("server %d, want %d: it stays after its last client", got, server)
		}
	})
}

// holdTables: ps and get_device_client_list with two clients; measured here.
func (b *bench) holdTables(server int, names map[int]string) {
	b.t.Helper()
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		b.t.Fatal(err)
	}
	space = strings.Trim(strings.TrimPrefix(space, "pid:"), "[]")
	want := "PID ID SERVER DEVICE NAMESPACE COMMAND|"
	for i := range 2 {
		want += fmt.Sprintf("C%d %d S GPU-xxxxxxxx-xxxx-xxxx %s %s|", i+1, i+1, space, filepath.Join(b.servers, "simguest"))
	}
	for _, command := range []string{"ps", fmt.Sprint("ps -p ", server)} {
		got := named(shortUUID.ReplaceAllString(b.ask(command), "GPU-xxxxxxxx-xxxx-xxxx"), names)
		if got = strings.ReplaceAll(squeeze(got), " |", "|"); strings.TrimSpace(got) != strings.TrimSuffix(want, "|") {
			b.t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	devices := named(b.ask("get_device_client_list"), names)
	if want := "[0] 23:00.0, Tesla V100S-PCIE-32GB|C1.1|C2.2"; devices != want {
		b.t.Errorf("get_device_client_list: %q, want %q", devices, want)
	}
}

// TestServerFails: a client's server that does not come up is tried
// six times, then the client is sent away: CUDA's 805.
func TestServerFails(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim")
		writeFile(t, filepath.Join(b.servers, "nvidia-cuda-mps-server"), fakeServer, 0o755)
		b.env = append(b.env, "FAKE_EXIT=1")
		b.start()
		if got := b.guest(0).line(); got != "error 805" {
			t.Errorf("the client: %q, want error 805", got)
		}
		b.until("the last one ends", func() bool { return strings.Count(b.output(), "exited with status 1") == 6 })
		if n := strings.Count(b.output(), "Starting new server"); n != 6 {
			t.Errorf("%d starts, want 6 (measured here):\n%s", n, b.output())
		}
	})
}

// TestNoDevice: no GPU: the words are the real server's.
func TestNoDevice(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		if out, code := b.node.Run(t.Context(), filepath.Join(b.node.Dir, "bin/simgpu"), "driver", "missing"); code != 0 {
			t.Fatal(code, out)
		}
		b.fails()
		var got []string
		for line := range strings.Lines(b.output()) {
			if m := stamp.FindStringSubmatch(strings.TrimSpace(line)); m != nil && m[1] == "Other" {
				got = append(got, m[3])
			}
		}
		want := []string{
			"Startup", "Connecting to control daemon on socket: " + b.pipe + "/control", "Initializing server process",
			"Driver initialization failed with: no CUDA-capable device is detected",
			"Failed to start : no CUDA-capable device is detected",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the server's log (-want +got):\n%s", diff)
		}
		if !strings.Contains(b.output(), "Server encountered a fatal exception. Shutting down\n") {
			t.Errorf("the daemon's log:\n%s", b.output())
		}
	})
}

// TestDaemonSeesNoDevice: it ends at once and says nothing, where there are GPUs.
func TestDaemonSeesNoDevice(t *testing.T) {
	n := New(t, "580.159.04", "H200")
	for list, want := range map[string]string{"": "1", "GPU-12345678": "1", "0": "124"} { // the time is over
		cmd := exec.Command("sh", "-c", "timeout 1 nvidia-cuda-mps-control -f </dev/null; echo $?")
		cmd.Env = append(n.Env(), "CUDA_VISIBLE_DEVICES="+list, "CUDA_MPS_PIPE_DIRECTORY="+shortDir(t), "CUDA_MPS_LOG_DIRECTORY="+shortDir(t),
			"PATH="+filepath.Join(n.Dir, "bin")+":/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || lines[len(lines)-1] != want || want == "1" && len(lines) != 1 {
			t.Errorf("%q: %v, %s; want %s", list, err, out, want)
		}
	}
}

// TestAccounts: one account at a time; the next one hangs in
// attach until the clients of the first are gone.
func TestAccounts(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		first, line := b.attached(1000)
		server := serverOf(line)
		if got := uidOf(t, server); got != 1000 {
			t.Errorf("the server runs as %d, want 1000", got)
		}
		other := b.guest(1001)
		if !other.waits() {
			t.Error("the second account does not wait")
		}
		late := b.guest(1000)
		if l.branch == 0 {
			// 535 has told its server to go: even its own account has to wait.
			if !late.waits() {
				t.Error("535: a newcomer of the first account does not wait")
			}
		} else if got := late.line(); serverOf(strings.TrimPrefix(got, "attached ")) != server {
			t.Errorf("a newcomer of the first account: %q, want server %d: it may starve the second", got, server)
		} else {
			late.kill()
		}
		if !other.waits() {
			t.Error("the second account does not wait for the first's clients")
		}
		first.kill()
		if l.branch == 0 {
			late.line()
			late.kill()
		}
		got := other.line()
		next := serverOf(strings.TrimPrefix(got, "attached "))
		if next == 0 || next == server || uidOf(t, next) != 1001 {
			t.Errorf("the second account: %q, want a server of its own", got)
		}
	})
}

// TestMultiuser: all accounts at once, one server, root's.
func TestMultiuser(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		if l.branch < 2 {
			t.Skip("-multiuser-server came with 555")
		}
		b := newBench(t, l, "sim").start("-multiuser-server")
		_, line := b.attached(1000)
		_, second := b.attached(1001)
		if server := serverOf(line); serverOf(second) != server || uidOf(t, server) != 0 {
			t.Errorf("servers %q and %q, want one of root", line, second)
		}
	})
}

// TestShutdownWithClients: 535 tells the server once and hands it nobody any
// more; later ones ask again and again.
func TestShutdownWithClients(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		client, line := b.attached(0)
		server := serverOf(line)
		names := map[int]string{b.pid(): "D", server: "S"}
		b.ask(fmt.Sprint("shutdown_server ", server))
		b.settle(names)
		if l.branch > 0 {
			tries := func(ms int) []string {
				return []string{"Control D: Try shutting down server S, backoff is enabled",
					"Control D: Server S has 1 active worker threads. Server will not shutdown.",
					fmt.Sprintf("Control D: Control will try shutting down server S again in at most %dms", ms)}
			}
			b.until("it tries again", func() bool { return strings.Contains(b.output(), "again in at most 800ms") })
			got := slices.DeleteFunc(b.newLog(names), func(s string) bool { return strings.HasPrefix(s, "Other") })
			if diff := cmp.Diff(slices.Concat(tries(400), tries(800)), got); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		}
		if gone(server) {
			t.Error("the server is gone before its client")
		}
		client.leave()
		b.until("the server goes", func() bool { return b.ask("get_server_list") == "" })
	})
}

// TestForcedShutdownWithClients: its clients lose the server.
func TestForcedShutdownWithClients(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		client, line := b.attached(0)
		b.force(serverOf(line))
		b.until("the server goes", func() bool { return b.ask("get_server_list") == "" })
		if got := client.do("error"); got != "806" {
			t.Errorf("the client's error: %s, want 806", got)
		}
		if _, line := b.attached(0); serverOf(line) == 0 {
			t.Error("the next client has no server")
		}
	})
}

// TestQuitWithClients: quit waits for them; quit -t does not (man page).
func TestQuitWithClients(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		client, _ := b.attached(0)
		if c := b.callWith(l.control, 300*time.Millisecond, 0, "quit\n"); c.rc != -1 {
			t.Errorf("quit with a client: %+v, want it to wait", c)
		}
		client.leave()
		if got := b.exit(); got != 0 {
			t.Errorf("the daemon exits with %d", got)
		}
		b.start()
		client, _ = b.attached(0)
		if c := b.callWith(l.control, cliLimit, 0, "quit -t 1\n"); c.rc < 0 {
			t.Errorf("quit -t 1: %+v", c)
		}
		if got := b.exit(); got != 0 {
			t.Errorf("forced: the daemon exits with %d", got)
		}
		if got := client.do("error"); got != "806" {
			t.Errorf("forced: the client's error: %s, want 806", got)
		}
	})
}

// TestLimitsOfLaterClients: sets act on later clients only, the
// defaults on later servers.
func TestLimitsOfLaterClients(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		b.ask("set_default_device_pinned_mem_limit 0 4G")
		_, line := b.attached(0)
		server := serverOf(line)
		b.ask("set_default_device_pinned_mem_limit 0 1G")
		b.ask("set_default_active_thread_percentage 10")
		if _, got := b.attached(0); got != fmt.Sprintf("%d 100.00 0 %d", server, 4<<30) {
			t.Errorf("after new defaults: %q", got)
		}
		b.ask(fmt.Sprintf("set_device_pinned_mem_limit %d 0 6G", server))
		b.ask(fmt.Sprintf("set_active_thread_percentage %d 55", server))
		if _, got := b.attached(0); got != fmt.Sprintf("%d 55.00 0 %d", server, 6<<30) {
			t.Errorf("after the server's own: %q, want more than the default", got)
		}
		b.force(server)
		b.until("the server goes", func() bool { return b.ask("get_server_list") == "" })
		_, got := b.attached(0)
		if want := fmt.Sprintf("%d 10.00 0 %d", serverOf(got), 1<<30); got != want {
			t.Errorf("a new server: %q, want %q", got, want)
		}
	})
}

// TestSlowServer: while a server starts, the daemon waits with it, and every
// caller with the daemon (measured here).
func TestSlowServer(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim", "GPUSLOT_SIM_MPS_START_MS=600").start()
		client := b.guest(0)
		b.until("the server starts", func() bool { return strings.Contains(b.output(), "Initializing server process") })
		if c := b.callWith(l.control, 200*time.Millisecond, 0, "get_server_list\n"); c.rc != -1 {
			t.Errorf("beside a starting server: %+v, want it to hang", c)
		}
		if got := client.line(); !strings.HasPrefix(got, "attached ") {
			t.Errorf("the client: %q", got)
		}
	})
}

// TestStoppedParts: who is stopped hangs those who need it.
func TestStoppedParts(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		_, line := b.attached(0)
		for _, part := range []struct {
			name string
			pid  int
		}{{"daemon", b.pid()}, {"server", serverOf(line)}} {
			_ = syscall.Kill(part.pid, syscall.SIGSTOP)
			g := b.guest(0)
			if !g.waits() {
				t.Errorf("%s stopped: a newcomer does not wait", part.name)
			}
			_ = syscall.Kill(part.pid, syscall.SIGCONT)
			if got := g.line(); !strings.HasPrefix(got, "attached ") {
				t.Errorf("%s goes on: %q", part.name, got)
			}
		}
	})
}

var shortUUID = regexp.MustCompile(`GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}`)

// TestPendingOrder: who came first is served first, but the account whose
// server has ended goes before all others (measured here).
func TestPendingOrder(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		now, _ := b.attached(1000)
		guests := map[int]*guest{}
		for _, uid := range []int{1002, 1001, 1003} {
			guests[uid] = b.pending(uid)
		}
		for _, uid := range []int{1002, 1001, 1003} {
			now.kill()
			if got := guests[uid].line(); !strings.HasPrefix(got, "attached ") {
				t.Fatalf("%d: %q", uid, got)
			}
			now = guests[uid]
		}
		b = newBench(t, l, "sim")
		writeFile(t, filepath.Join(b.servers, "nvidia-cuda-mps-server"), fakeServer, 0o755)
		writeFile(t, filepath.Join(b.servers, "nvidia-cuda-mps-server.args"), "", 0o666)
		b.start()
		server := b.server(1000, "")
		b.pending(1001)
		b.pending(1000)
		_ = syscall.Kill(server, syscall.SIGKILL)
		var next int
		b.until("the next server starts", func() bool { next = b.theServer(""); return next != server })
		if got := uidOf(t, next); got != 1000 {
			t.Errorf("the next server is of account %d, want 1000", got)
		}
	})
}

// pending is a client that the daemon has put on its list.
func (b *bench) pending(uid int) *guest {
	b.t.Helper()
	g := b.guest(uid)
	b.until("it is on the list", func() bool {
		return strings.Contains(b.output(), fmt.Sprintf("NEW CLIENT %d from user %d: Server is not ready", g.pid(), uid))
	})
	return g
}
