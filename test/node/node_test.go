package node_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/node"
)

// boot boots a node for a test, and checks at its end that nothing of it is left.
func boot(t *testing.T, o node.Options) (context.Context, *node.Node) {
	t.Helper()
	if err := node.Available(); err != nil {
		t.Skip(err.Error())
	}
	if testing.Verbose() {
		o.Progress = os.Stderr
	}
	ctx := t.Context()
	n, err := node.Boot(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(ctx, 2*node.Patience)
	t.Cleanup(cancel)
	return ctx, n
}

// run runs a command inside as root and returns what it printed.
func run(ctx context.Context, t *testing.T, n *node.Node, args ...string) string {
	t.Helper()
	res, err := n.Run(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout)
}

func TestBoot(t *testing.T) {
	ctx, n := boot(t, node.Options{Name: "lab"})
	if state := run(ctx, t, n, "sh", "-c", "systemctl is-system-running || true"); state != "running" {
		t.Errorf("systemd is %q: failed units: %s", state, run(ctx, t, n, "systemctl", "--failed", "--plain", "--no-legend"))
	}
	if name := run(ctx, t, n, "hostname"); name != "lab" {
		t.Errorf("host name %q, want lab", name)
	}
	if comm := run(ctx, t, n, "cat", "/proc/1/comm"); comm != "systemd" {
		t.Errorf("PID 1 is %q", comm)
	}
	// Nothing but the loopback.
	if links := run(ctx, t, n, "sh", "-c", "ls /sys/class/net"); links != "lo" {
		t.Errorf("network interfaces %q, want lo only", links)
	}
	if active := run(ctx, t, n, "sh", "-c", "systemctl is-active condor || true"); active != "inactive" {
		t.Errorf("HTCondor is %q before StartCondor", active)
	}
	if version := run(ctx, t, n, "condor_version"); !newEnough(version, 25, 14) {
		t.Errorf("HTCondor is older than 25.14: %s", version)
	}
}

// newEnough reads "$CondorVersion: 25.14.1 2026-…".
func newEnough(text string, major, minor int) bool {
	m := regexp.MustCompile(`CondorVersion: (\d+)\.(\d+)\.`).FindStringSubmatch(text)
	if m == nil {
		return false
	}
	gotMajor, _ := strconv.Atoi(m[1])
	gotMinor, _ := strconv.Atoi(m[2])
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

func TestExec(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("bound"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, n := boot(t, node.Options{
		Binds: []node.Bind{{Host: dir, Guest: "/opt/test"}},
		Files: map[string]node.File{"/home/alice/in": {Data: "x", Owner: "alice", Mode: 0o600}},
	})

	t.Run("binds are read-only", func(t *testing.T) {
		if got := run(ctx, t, n, "cat", "/opt/test/a"); got != "bound" {
			t.Errorf("got %q", got)
		}
		if _, err := n.Run(ctx, "touch", "/opt/test/b"); err == nil {
			t.Error("the bind can be written to")
		}
	})
	t.Run("files have their owner and mode", func(t *testing.T) {
		if got := run(ctx, t, n, "stat", "-c", "%U:%G %a", "/home/alice/in"); got != "alice:alice 600" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a user has his own environment and home", func(t *testing.T) {
		t.Setenv("NODE_TEST_LEAK", "1")
		res, err := n.RunAs(ctx, "alice", "sh", "-c", `id -un; id -Gn; pwd; echo "$HOME $USER ${NODE_TEST_LEAK-none}"`)
		if err != nil {
			t.Fatal(err)
		}
		if want := "alice\nalice\n/home/alice\n/home/alice alice none\n"; res.Stdout != want {
			t.Errorf("got %q, want %q", res.Stdout, want)
		}
	})
	t.Run("a command is inside the cgroup tree of the node", func(t *testing.T) {
		got := run(ctx, t, n, "grep", "^0:", "/proc/self/cgroup")
		if !regexp.MustCompile(`^0::/exec/\d+$`).MatchString(got) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("stdin, environment, directory, exit code", func(t *testing.T) {
		res, err := n.Exec(ctx, node.Cmd{
			Args:  []string{"sh", "-c", `cat; pwd; echo "$A"; echo oops >&2; exit 7`},
			Stdin: strings.NewReader("in\n"), Env: map[string]string{"A": "b c"},
		})
		var exit *node.ExitError
		if !errors.As(err, &exit) || exit.Result.Code != 7 || !strings.Contains(err.Error(), "oops") {
			t.Errorf("error %v", err)
		}
		if want := (node.Result{Stdout: "in\n/root\nb c\n", Stderr: "oops\n", Code: 7}); res != want {
			t.Errorf("got %+v, want %+v", res, want)
		}
	})
	t.Run("a command ends with its context, and its children with it", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := n.Run(short, "sh", "-c", "sleep 4711 & sleep 4711")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > node.Patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if left := run(ctx, t, n, "sh", "-c", "pgrep -x -f 'sleep 4711' || true"); left != "" {
			t.Errorf("still there: %s", left)
		}
	})
	t.Run("who reads a held file waits for its release", func(t *testing.T) {
		release, err := n.Hold(ctx, "/run/x/hold")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := n.RunAs(ctx, "alice", "sh", "-c", "touch /tmp/begun; exec cat /run/x/hold")
			ended <- err
		}()
		if err := n.Wait(ctx, "the reader", func() bool {
			_, err := n.Run(ctx, "test", "-e", "/tmp/begun")
			return err == nil
		}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Errorf("it did not wait: %v", err)
		case <-time.After(time.Second):
		}
		if err := errors.Join(release(), <-ended, release()); err != nil {
			t.Error(err)
		}
		if _, err := n.Run(ctx, "test", "-e", "/run/x/hold"); err == nil {
			t.Error("it is still there")
		}
	})
	t.Run("write and read", func(t *testing.T) {
		want := node.File{Data: "line\n\x00binary", Owner: "bob", Mode: 0o640}
		if err := n.WriteFile(ctx, "/var/lib/x/y", want); err != nil {
			t.Fatal(err)
		}
		if got, err := n.ReadFile(ctx, "/var/lib/x/y"); err != nil || got != want.Data {
			t.Errorf("got %q, %v", got, err)
		}
		if got := run(ctx, t, n, "stat", "-c", "%U:%G %a", "/var/lib/x/y"); got != "bob:bob 640" {
			t.Errorf("got %q", got)
		}
		if _, err := n.ReadFile(ctx, "/var/lib/x/z"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file: %v", err)
		}
	})
}

const sleepJob = `executable = /bin/sh
arguments = "-c 'sleep 600'"
request_cpus = 1
request_memory = 50
request_disk = 10M
should_transfer_files = yes
queue
`

func TestJob(t *testing.T) {
	ctx, n := boot(t, node.Options{Name: "lab"})
	if err := n.StartCondor(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("completes", func(t *testing.T) {
		cluster, err := n.Submit(ctx, "alice", `executable = /bin/sh
arguments = "-c 'id -un; exit 3'"
output = out
request_cpus = 1
request_memory = 50
request_disk = 10M
should_transfer_files = yes
queue
`)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.WaitJobs(ctx, cluster, 4); err != nil {
			t.Fatal(err)
		}
		rows, err := n.JobAttrs(ctx, cluster, "Owner", "ExitCode", "NumJobStarts", "NoSuch")
		if err != nil || len(rows) != 1 || strings.Join(rows[0], " ") != `"alice" 3 1 undefined` {
			t.Errorf("attributes %q, %v", rows, err)
		}
		if out, err := n.ReadFile(ctx, "/home/alice/out"); out != "alice\n" {
			t.Errorf("output %q, %v", out, err)
		}
		log, err := n.JobLog(ctx, cluster)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"000 (", "001 (", "005 ("} {
			if !strings.Contains("\n"+log, "\n"+event) {
				t.Errorf("no event %s) in the log:\n%s", event, log)
			}
		}
	})
	t.Run("cgroup", func(t *testing.T) {
		cluster, err := n.Submit(ctx, "bob", sleepJob)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.WaitJobs(ctx, cluster, 2); err != nil {
			t.Fatal(err)
		}
		var line string
		if err := n.Wait(ctx, "the job's process", func() bool {
			res, err := n.Run(ctx, "sh", "-c", `grep -h ^0: "/proc/$(pgrep -u bob -x sleep | head -n1)/cgroup"`)
			line = strings.TrimSpace(res.Stdout)
			return err == nil
		}); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/job-cgroup.regexp")
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(strings.TrimSpace(string(want))).MatchString(line) {
			t.Errorf("got %q, want %s", line, want)
		}
	})
}

func TestTwoNodes(t *testing.T) {
	ctx, one := boot(t, node.Options{})
	_, two := boot(t, node.Options{})
	var wait sync.WaitGroup
	for _, n := range []*node.Node{one, two} {
		wait.Go(func() {
			if err := n.StartCondor(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	cluster, err := one.Submit(ctx, "alice", sleepJob)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.WaitJobs(ctx, cluster, 2); err != nil {
		t.Fatal(err)
	}
	if rows, err := two.JobAttrs(ctx, cluster, "Owner"); err != nil || len(rows) != 0 {
		t.Errorf("the other node has the job too: %q, %v", rows, err)
	}
}

// TestReboot: files stay, what is in memory does not, and enabled units start.
func TestReboot(t *testing.T) {
	ctx, n := boot(t, node.Options{Name: "reboot"})
	read := func(path string) string {
		text, _ := n.ReadFile(ctx, path)
		return text
	}
	for _, path := range []string{"/var/lib/stays", "/run/goes"} {
		if err := n.WriteFile(ctx, path, node.File{Data: "here"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Run(ctx, "systemctl", "enable", "condor.service"); err != nil {
		t.Fatal(err)
	}
	first := read("/proc/sys/kernel/random/boot_id")
	for range 2 {
		if err := n.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if read("/var/lib/stays") != "here" || read("/run/goes") != "" || read("/proc/sys/kernel/random/boot_id") == first {
		t.Errorf("after the reboot: a file %q, in memory %q, boot id %q", read("/var/lib/stays"), read("/run/goes"), read("/proc/sys/kernel/random/boot_id"))
	}
	if err := n.WaitSlots(ctx, 1); err != nil {
		t.Error(err)
	}
}
