package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What stands in no other test of the suite.

// TestRenamedDirectory: with its directory renamed a daemon is orphaned, and
// a second one starts in the old place.
func TestRenamedDirectory(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none").start()
		first := b.pid()
		b.ask("get_default_active_thread_percentage") // it has all its files then
		if err := os.Rename(b.pipe, b.pipe+"-moved"); err != nil {
			t.Fatal(err)
		}
		if c := b.background(); c != (called{}) {
			t.Fatalf("a second daemon: %+v", c)
		}
		if owner := b.lockOwner(); owner == 0 || owner == first || gone(first) {
			t.Errorf("lock owner %d, the first daemon %d gone: %v", owner, first, gone(first))
		}
	})
}

// TestForegroundInput: -f reads no commands from standard input and does not
// end with it.
func TestForegroundInput(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		b.input = strings.NewReader("set_default_active_thread_percentage 50\nquit\n")
		b.start()
		if got := b.ask("get_default_active_thread_percentage"); got != "100.0" || gone(b.pid()) {
			t.Errorf("percentage %q, gone %v: it took commands from its input", got, gone(b.pid()))
		}
	})
}

// TestStrangersServer: any account that reaches the directory may start a
// server of its own, which comes when the current one ends.
func TestStrangersServer(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "fake").start()
		first := b.server(0, "")
		if got := b.call(1000, "start_server -uid 1000\n"); got != (called{}) {
			t.Errorf("a stranger's: %+v, want it accepted", got)
		}
		b.force(first)
		var second int
		b.until("the stranger's server starts", func() bool { second = b.theServer(""); return second != first })
		if got := uidOf(t, second); got != 1000 {
			t.Errorf("the next server runs as %d, want 1000", got)
		}
	})
}

// TestLogKeptOpen: there is no re-open: after control.log was removed
// nothing is written any more; copy-and-truncate works.
func TestLogKeptOpen(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "none")
		b.background()
		path := filepath.Join(b.logs, "control.log")
		says := func(word string) bool { text, _ := os.ReadFile(path); return strings.Contains(string(text), word) }
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		b.ask("after_truncation")
		b.until("the truncated log goes on", func() bool { return says("Cmd:after_truncation") })
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		b.ask("after_removal")
		old, again := path+".1", path
		path = old
		b.until("it goes into the old file", func() bool { return says("Cmd:after_removal") })
		if _, err := os.Stat(again); err == nil {
			t.Error("there is a new control.log")
		}
	})
}

// TestSecondAccountHangsInCuInit: through the whole of libcuda: the job of
// another account waits in cuInit until the first account's are gone.
func TestSecondAccountHangsInCuInit(t *testing.T) {
	needRoot(t)
	n := New(t, "550.163.01", "T4")
	if sanitized() {
		t.Skip("the sanitizers' runtime lies where other accounts cannot go")
	}
	server := publicCopy(t, filepath.Join(n.Dir, "bin/nvidia-cuda-mps-server"))
	simjob, lib := publicCopy(t, filepath.Join(n.Dir, "bin/simjob")), publicCopy(t, filepath.Join(n.Lib(), "libcuda.so.1"))
	d := n.daemonWith(t, []string{"-d"}, "PATH="+filepath.Dir(server))
	if err := os.Chmod(d.pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	job := func(uid int, words string) *running {
		cmd := exec.Command(simjob, strings.Fields(words)...)
		cmd.SysProcAttr, cmd.Dir = account(uid), "/"
		return n.begin(t, cmd, append(d.vars(), "LD_LIBRARY_PATH="+filepath.Dir(lib))...)
	}
	first := job(1000, "context until eof")
	first.line("context on device 0: ok")
	second := job(1001, "context")
	n.eventually(t, "the second one is at the daemon", func(shown) bool {
		log, err := os.ReadFile(filepath.Join(d.pipe, "control.log"))
		return err == nil && strings.Contains(string(log), "from user 1001: Server is not ready, push client to pending list")
	})
	if said := second.said(); len(said) > 0 {
		t.Errorf("while the first account's job lives the second's says %q, want nothing: it hangs in cuInit", said)
	}
	first.end()
	second.line("context on device 0: ok")
}
