package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/poll"
)

// leg is one control program: NVIDIA's own of a branch, or ours that does as
// that branch.
type leg struct {
	branch  int // index into driver.Branches
	real    bool
	control string // where every account can run it
}

func (l leg) String() string {
	if l.real {
		return "real " + driver.Branches()[l.branch]
	}
	return "sim " + driver.Branches()[l.branch]
}

// words is what the three branches say, oldest first. Lines are divided by "|".
type words [3]string

func same(s string) words { return words{s, s, s} }

// since is what 550 and newer say, where 535 does not know the command.
func since550(old, s string) words { return words{old, s, s} }

// onEachLeg runs a test against the real control programs and ours.
func onEachLeg(t *testing.T, test func(t *testing.T, l leg)) {
	for i, branch := range driver.Branches() {
		for _, real := range []bool{true, false} {
			l := leg{branch: i, real: real}
			t.Run(l.String(), func(t *testing.T) {
				t.Parallel()
				if real {
					l.control = publicCopy(t, driver.Control(driver.Dir(t, branch)))
				} else {
					l.control = publicCopy(t, filepath.Join(Dir(t), "bin/nvidia-cuda-mps-control"))
				}
				test(t, l)
			})
		}
	}
}

// onSimulated runs a test against ours alone.
func onSimulated(t *testing.T, test func(t *testing.T, l leg)) {
	for i := range driver.Branches() {
		l := leg{branch: i}
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			l.control = publicCopy(t, filepath.Join(Dir(t), "bin/nvidia-cuda-mps-control"))
			test(t, l)
		})
	}
}

// shortDir is a directory that every account can traverse: t.TempDir is often
// too long for a pipe directory.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// publicCopy puts a program where every account can run it.
func publicCopy(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(shortDir(t), filepath.Base(file)), string(b), 0o755)
}

func writeFile(t *testing.T, path, text string, mode fs.FileMode) string {
	t.Helper()
	// A child that a parallel test forks meanwhile would hold the file open for
	// writing, and make it "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeServer never connects: the daemon keeps it in INITIALIZING.
const fakeServer = `#!/bin/sh
[ -z "${FAKE_EXIT-}" ] || exit "$FAKE_EXIT"
[ -z "${FAKE_STUBBORN-}" ] || trap '' INT
trap 'exit 0' TERM
echo "$$ $*" >>"$0.args"
while :; do sleep 0.02; done
`

// bench is one pipe directory with its daemon.
type bench struct {
	t       *testing.T
	leg     leg
	dir     string
	pipe    string
	logs    string
	servers string // first on the daemon's PATH
	env     []string
	node    *Node // of the simulated server
	cmd     *exec.Cmd
	ended   chan struct{}
	said    int       // bytes of the log that were read
	calls   int       // command lines that were served
	input   io.Reader // of the daemon; nil: none
}

// newBench makes the directories; nothing runs yet. server is "none", "fake"
// or "sim" (the simulated server, on a node of one V100S).
func newBench(t *testing.T, l leg, server string, env ...string) *bench {
	t.Helper()
	dir := shortDir(t)
	b := &bench{t: t, leg: l, dir: dir, pipe: filepath.Join(dir, "p"), logs: filepath.Join(dir, "l"), servers: filepath.Join(dir, "bin")}
	version := driver.Branches()[l.branch]
	b.env = append([]string{"LC_ALL=C", "CUDA_MPS_PIPE_DIRECTORY=" + b.pipe, "CUDA_MPS_LOG_DIRECTORY=" + b.logs,
		"GPUSLOT_SIM_DRIVER=" + version, "GPUSLOT_SIM_STATE=" + filepath.Join(dir, "state"),
		"PATH=" + b.servers + ":/usr/bin:/bin"}, env...)
	if err := os.Mkdir(b.servers, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(b.servers, "nvidia-cuda-mps-server")
	switch server {
	case "fake":
		writeFile(t, program, fakeServer, 0o755)
		writeFile(t, program+".args", "", 0o666)
	case "sim":
		n := New(t, version+".1", "V100S")
		b.node, b.env = n, append(b.env, n.Vars()...)
		copied, err := os.ReadFile(filepath.Join(n.Dir, "bin/nvidia-cuda-mps-server"))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, program, string(copied), 0o755)
		writeGuest(t, n, b.servers)
	}
	return b
}

func writeGuest(t *testing.T, n *Node, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir, "bin/simguest"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "simguest"), string(b), 0o755)
}

// start starts the daemon in the foreground and waits until its sockets
// listen: then it makes `control` open to all.
func (b *bench) start(flags ...string) *bench {
	b.t.Helper()
	out, err := os.OpenFile(filepath.Join(b.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		b.t.Fatal(err)
	}
	defer out.Close()
	b.cmd = exec.Command(b.leg.control, append(flags, "-f")...)
	b.cmd.Env, b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = b.env, "/", out, out
	b.cmd.SysProcAttr, b.cmd.Stdin = &syscall.SysProcAttr{Setsid: true}, b.input
	before := b.socket()
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	cmd, ended := b.cmd, make(chan struct{})
	b.ended = ended
	go func() { _ = cmd.Wait(); close(ended) }()
	b.t.Cleanup(func() { endSession(cmd.Process.Pid); <-ended })
	b.until("the daemon listens", func() bool {
		select {
		case <-ended:
			b.t.Fatalf("the daemon ended: %v: %s", cmd.ProcessState, b.output())
		default:
		}
		now := b.socket()
		return now != before && now != 0
	})
	return b
}

// socket tells one listening control socket from the next: its inode, 0 as
// long as not all may connect.
func (b *bench) socket() uint64 {
	st, err := os.Stat(filepath.Join(b.pipe, "control"))
	if err != nil || st.Mode().Perm() != 0o666 {
		return 0
	}
	// The time, too: an inode number is used again at once.
	return st.Sys().(*syscall.Stat_t).Ino ^ uint64(st.Sys().(*syscall.Stat_t).Ctim.Nano())
}

// endSession kills every process of a session, which outlive their daemon.
func endSession(session int) {
	for range 100 {
		left := sessionMembers(session)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sessionMembers lists the living processes of a session.
func sessionMembers(session int) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := statFields(pid); len(f) > 3 && f[0] != "Z" && f[3] == strconv.Itoa(session) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// statFields are /proc/PID/stat from field 3 on; none for a process that is gone.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// gone tells whether a process is dead; a zombie is.
func gone(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || f[0] == "Z" || f[0] == "X"
}

func (b *bench) until(what string, so func() bool) {
	b.t.Helper()
	if !poll.Until(patience, 2*time.Millisecond, so) {
		b.t.Fatalf("never: %s; the daemon said:\n%s", what, b.output())
	}
}

// exit waits for the daemon's end and returns its status; -1: by a signal.
func (b *bench) exit() int {
	b.t.Helper()
	select {
	case <-b.ended:
		return b.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		b.t.Fatalf("the daemon does not end; it said:\n%s", b.output())
		return 0
	}
}

func (b *bench) pid() int { return b.cmd.Process.Pid }

// called is what a run of a command line left.
type called struct {
	out, err string
	rc       int // -1: it was killed when the time was over
}

// cliLimit is for a call that hangs for good; 3 ms is usual.
const cliLimit = 10 * time.Second

// call gives a script to the command line as an account (0: our own). It counts
// as served where it was executed.
func (b *bench) call(uid int, script string) called {
	b.calls++
	c := b.callWith(b.leg.control, cliLimit, uid, script)
	if c.rc != 0 {
		b.calls--
	}
	return c
}

func (b *bench) callWith(program string, limit time.Duration, uid int, script string, args ...string) called {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.env, "/", strings.NewReader(script), &out, &errOut
	cmd.SysProcAttr = account(uid)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return called{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

func account(uid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if uid != 0 {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	return a
}

// ask is one command of our own that must be executed; its reply, lines
// divided by "|".
func (b *bench) ask(command string) string {
	b.t.Helper()
	c := b.call(0, command+"\n")
	if c.rc != 0 || c.err != "" {
		b.t.Fatalf("%s: %+v; the daemon said:\n%s", command, c, b.output())
	}
	return bars(c.out)
}

// force ends a server at once. Of a server that ends before the daemon has
// answered, the command line of 550 may return 1.
func (b *bench) force(server int) {
	b.t.Helper()
	b.calls++
	if c := b.callWith(b.leg.control, cliLimit, 0, fmt.Sprintf("shutdown_server %d -f\n", server)); c.out+c.err != "" {
		b.t.Fatalf("shutdown_server -f: %+v; the daemon said:\n%s", c, b.output())
	}
}

func bars(s string) string { return strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "|") }

// server starts a server for an account and waits for what shows that it came.
func (b *bench) server(uid int, status string) int {
	b.t.Helper()
	b.ask(fmt.Sprintf("start_server -uid %d", uid))
	return b.theServer(status)
}

// theServer waits for a server in some status ("" for any, but a fake one has
// set its traps) and returns its PID.
// 535 has no status: there readiness shows in a setting that can be read.
func (b *bench) theServer(status string) int {
	b.t.Helper()
	var pid int
	b.until("a server is "+status, func() bool {
		pid, _ = strconv.Atoi(b.ask("get_server_list"))
		switch {
		case pid == 0:
			return false
		case status == "":
			args, err := os.ReadFile(filepath.Join(b.servers, "nvidia-cuda-mps-server.args"))
			return err != nil || strings.Contains("\n"+string(args), fmt.Sprintf("\n%d ", pid))
		case b.leg.branch == 0:
			return (b.ask(fmt.Sprint("get_active_thread_percentage ", pid)) != "") == (status == "ACTIVE")
		default:
			return b.ask(fmt.Sprint("get_server_status ", pid)) == status
		}
	})
	return pid
}

func (b *bench) output() string {
	out, _ := os.ReadFile(filepath.Join(b.dir, "out"))
	return string(out)
}

// stamp is the form of a line of the log.
var stamp = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (Control|Server|Other|Client|Legacy Server) ([ \d]{5}|\d{6,})\] (.*)$`)

// newLog is what the log says since the last call, without time stamps and
// connections. PIDs that the test knows are replaced by their names.
func (b *bench) newLog(names map[int]string) []string {
	b.t.Helper()
	all := b.output()
	fresh := all[b.said:]
	b.said = len(all)
	var lines []string
	for line := range strings.Lines(fresh) {
		m := stamp.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case m == nil:
			b.t.Errorf("the log has a line of no known form: %q", line)
			continue
		case slices.Contains([]string{"Accepting connection...", "NEW UI", "UI closed"}, m[3]):
			continue
		}
		who := strings.TrimSpace(m[2])
		if n, _ := strconv.Atoi(who); names[n] != "" {
			who = names[n]
		}
		lines = append(lines, m[1]+" "+who+": "+named(m[3], names))
	}
	return lines
}

var number = regexp.MustCompile(`(UID )?\d+`)

// named puts names for PIDs; a UID may be the same number.
func named(s string, names map[int]string) string {
	return number.ReplaceAllStringFunc(s, func(match string) string {
		n, err := strconv.Atoi(match)
		if name := names[n]; err == nil && name != "" {
			return name
		}
		return match
	})
}

// lockOwner is the PID that F_GETLK gives for control_lock.
func (b *bench) lockOwner() int {
	f, err := os.Open(filepath.Join("/", b.pipe, "control_lock")) // a relative one is the daemon's, which runs in /
	if err != nil {
		return 0
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}
