package mps

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/driver"
)

// TestReplies holds the words of the control daemons that everything else
// relies on.
func TestReplies(t *testing.T) {
	same := func(s string) [3]string { return [3]string{s, s, s} }
	steps := []struct {
		command string
		want    [3]string // 535, 550, 555
	}{
		{"get_server_list", same("")},
		{"get_default_device_pinned_mem_limit 0", same("")},
		{"get_default_active_thread_percentage", same("100.0")},
		{"set_default_active_thread_percentage 33.3", same("33.3")},
		{"set_default_active_thread_percentage 0", same("33.3")},
		{"set_default_active_thread_percentage 150", same("33.3")},
		{"get_default_active_thread_percentage", same("33.3")},
		{"set_default_device_pinned_mem_limit 0 1500M", same("")},
		{"get_default_device_pinned_mem_limit 0", same("1G")},
		{"get_default_device_pinned_mem_limit", same("1G")},
		{"set_default_device_pinned_mem_limit 0 1T", same("")},
		{"get_default_device_pinned_mem_limit 0", same("1M")},
		{"set_default_device_pinned_mem_limit 0 -5M", same("")},
		{"get_default_device_pinned_mem_limit 0", same("17179869183G")},
		{"set_default_device_pinned_mem_limit 0 0G", same("")},
		{"get_default_device_pinned_mem_limit 0", same("")},
		{"get_client_list 1", same("Server 1 not found")},
		{"get_server_status 1", [3]string{`Unknown command "get_server_status"`, "Server 1 not found", "Server 1 not found"}},
		{"bogus", same(`Unknown command "bogus"`)},
	}
	for i, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			d := started(t, onDriver(t, branch))
			for _, s := range steps {
				if got := exchange(t, d, s.command); got != s.want[i] {
					t.Errorf("%s: %q, want %q", s.command, got, s.want[i])
				}
			}
		})
	}
}

func TestSetRefusesTheImpossible(t *testing.T) {
	d := NewDaemon(uuid0, "/nonexistent", "/nonexistent")
	for _, w := range []Wanted{
		{uuid0, 0, 100}, {uuid0, -1, 100}, {uuid0, largestLimit + 1, 100},
		{uuid0, 1, 0}, {uuid0, 1, -1}, {uuid0, 1, 100.1}, {uuid0, 1, nan()},
	} {
		_, err := d.Set(t.Context(), w)
		wantFault(t, err, Invalid, string(uuid0))
		_, err = d.Check(t.Context(), w)
		wantFault(t, err, Invalid, string(uuid0))
		_, err = d.SetServers(t.Context(), w, 1)
		wantFault(t, err, Invalid, string(uuid0))
	}
	for _, line := range []string{"a\nquit", "a\x00b", "a\rb", strings.Repeat("x", maxLine+1)} {
		_, err := d.Command(t.Context(), line)
		wantFault(t, err, Invalid)
	}
	_, err := d.Command(t.Context(), strings.Repeat("x", maxLine))
	wantFault(t, err, NotRunning)
}

func nan() float64 { var zero float64; return zero / zero }

// TestManyCommands: the daemon lets all but one of concurrent connections
// fail, and ours all succeed; also those of two handles on the same daemon,
// as two programs have them.
func TestManyCommands(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		handles := []*Daemon{started(t, r), mustDaemon(t, r, uuid0)}
		for _, d := range handles {
			d.patience = 30 * time.Second // a machine under load is not what is tested
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				word := fmt.Sprintf("word-%d", i)
				got, err := handles[i%2].Command(t.Context(), word)
				if want := fmt.Sprintf("Unknown command %q", word); got != want || err != nil {
					t.Errorf("%s: %q, %v", word, got, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestSuspended: SIGSTOP is seen at once and without waiting for an answer.
func TestSuspended(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		w := Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 100}
		checked, err := d.Set(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.StillRuns(checked); err != nil {
			t.Error(err)
		}
		signal(t, checked.Process(), syscall.SIGSTOP)
		wantFault(t, d.StillRuns(checked), Suspended, "SIGCONT")
		_, err = d.Alive()
		wantFault(t, err, Suspended)
		_, err = d.Check(t.Context(), w)
		wantFault(t, err, Suspended)
		signal(t, checked.Process(), syscall.SIGCONT)
		if err := d.StillRuns(checked); err != nil {
			t.Error(err)
		}
		if _, err := d.Check(t.Context(), w); err != nil {
			t.Error(err)
		}
	})
}

// TestSuspendedWhileAsked: a daemon that stops in the middle of a conversation
// is not waited for beyond the patience.
func TestSuspendedWhileAsked(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		who := alive(t, d)
		d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"),
			fmt.Sprintf("#!/bin/sh\nkill -STOP %d\nexec %s\n", who.PID, r.Program))
		d.patience = time.Second
		_, err := d.Command(t.Context(), "get_server_list")
		wantFault(t, err, Suspended)
	})
}

// TestLockOfAnotherProcess: a lock that a process of another session holds is not the lock of the one that was started.
func TestLockOfAnotherProcess(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		pid := alive(t, d).PID
		late, cancel := context.WithCancel(t.Context())
		cancel()
		said := func() string { return "" }
		if err := d.awaitLock(late, pid, nil, said); err != nil {
			t.Error(err)
		}
		wantFault(t, d.awaitLock(late, pid+1, nil, said), Wedged)
	})
}

// TestBusy: a stranger's idle command line makes every other one fail at once,
// some of them with exit code 0.
func TestBusy(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		stranger := exec.Command(r.Program)
		stranger.Env = clientEnvironment(d.dir)
		in, err := stranger.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(in, "get_default_active_thread_percentage"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the stranger is connected", func() bool { return hasSocket(stranger.Process.Pid) })
		d.patience = 300 * time.Millisecond
		_, err = d.Command(t.Context(), "get_server_list")
		if f := FaultOf(err); f != Busy && f != Wedged {
			t.Errorf("error %v, want busy or wedged", err)
		}
		in.Close()
		if err := stranger.Wait(); err != nil {
			t.Error(err)
		}
		d.patience = 30 * time.Second
		exchange(t, d, "get_server_list")
	})
}

// hasSocket reports whether a process has a socket open.
func hasSocket(pid int) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:") {
			return true
		}
	}
	return false
}

// refusing is a command line that is refused as at the unprivileged socket.
const refusing = `while read line; do case $line in
set_*) echo "Insufficient privileges for UID 0. Control deamon settings can only be modified by the user started it or by the root user." ;;
eof-*) echo "Unknown command \"$line\"" ;;
esac; done
`

// TestRefusedAtTheStart: a refusal in the first moments of a daemon is not the
// last word, and one that remains is named.
func TestRefusedAtTheStart(t *testing.T) {
	r := onDriver(t, "555")
	d := started(t, r)
	w := Wanted{uuid0, 1024, 100}
	flag := filepath.Join(tempDir(t), "asked")
	d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"),
		"#!/bin/sh\n[ -e "+flag+" ] && exec "+r.Program+"\n: >"+flag+"\n"+refusing)
	if _, err := d.Set(t.Context(), w); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(flag); err != nil {
		t.Error("the command line was never refused")
	}
	d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n"+refusing)
	d.patience = 300 * time.Millisecond
	_, err := d.Set(t.Context(), w)
	wantFault(t, err, Refused, "Insufficient privileges", "run the agent as root")
}

func TestNotInstalled(t *testing.T) {
	r := onDriver(t, "550")
	d := started(t, r)
	for _, program := range []string{"/nonexistent/nvidia-cuda-mps-control", "nvidia-cuda-mps-no-such-program"} {
		d.program = program
		_, err := d.Command(t.Context(), "get_server_list")
		wantFault(t, err, NotInstalled, program, "install the package nvidia-cuda-mps (Debian)")
		_, err = d.Check(t.Context(), Wanted{uuid0, 1024, 100})
		wantFault(t, err, NotInstalled)
	}
	d.program = filepath.Dir(r.Program) // no program at all
	_, err := d.Command(t.Context(), "get_server_list")
	wantFault(t, err, NotInstalled, "make it executable")
}

// TestCommandLineGoesWrong: whatever stands in for the command line, there is
// an error in time and none of its processes is left.
func TestCommandLineGoesWrong(t *testing.T) {
	d := started(t, onDriver(t, "550"))
	pidFile := filepath.Join(tempDir(t), "pid")
	for name, tt := range map[string]struct {
		script string
		want   Fault
	}{
		"silent success":   {"exit 0", Busy},
		"failure":          {"exit 1", Busy},
		"endless output":   {"exec yes", Busy},
		"hangs with child": {"sleep 600 & echo $! >" + pidFile + "; wait", Wedged},
		"echoes":           {"cat", Busy},
	} {
		t.Run(name, func(t *testing.T) {
			d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n"+tt.script+"\n")
			d.patience = time.Second
			_, err := d.Command(t.Context(), "get_server_list")
			wantFault(t, err, tt.want)
		})
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child of the command line is gone", func() bool {
		s, err := proc.Stat(pid)
		return err != nil || s.Ended()
	})
}
