package systemd_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/systemd"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/node"
)

// TestNode goes through the life of the units on a booted systemd, driven by an
// agent inside its own sandbox.
func TestNode(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) { testNode(t, branch) })
	}
}

// TestNode252 does so on the oldest systemd that packages ask for: that of
// Debian 12, and of EL9. Debian 12 has no HTCondor, and the units need none.
func TestNode252(t *testing.T) {
	t.Setenv("NODE_SUITE", "bookworm")
	t.Setenv("NODE_CONDOR", "no")
	testNode(t, "535")
}

func testNode(t *testing.T, branch string) {
	ctx, l := boot(t, branch)
	step := func(name string, test func(l lab)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) { test(lab{l.Node, t}) }) {
			journal, _ := l.Journal(ctx, systemd.MPSUnit(uuidA))
			t.Fatalf("the node is not as the next step needs it\n%s", journal)
		}
	}
	step("verify", func(l lab) {
		out := l.run(ctx, "sh", "-c", "systemd-analyze verify gpuslotd.service gpuslotd.socket '"+systemd.MPSUnit(uuidA)+"' 'gpuslot-mps-dir@"+string(uuidA)+".service' 2>&1")
		if out != "" {
			l.t.Errorf("systemd-analyze verify says:\n%s", out)
		}
		l.t.Logf("%s", strings.SplitN(l.run(ctx, "systemctl", "--version"), "\n", 2)[0])
		for unit := range hardened {
			name := strings.Replace(unit, "@.", "@"+string(uuidA)+".", 1)
			analyze := func(args ...string) string {
				return l.run(ctx, append([]string{"systemd-analyze", "security", "--no-pager"}, append(args, name)...)...)
			}
			checkHardening(l.t, unit, analyze("--json=short"), analyze(), false)
		}
	})
	step("the socket starts the agent", func(l lab) {
		l.run(ctx, "sh", "-c", "echo '6,1,1,-;hello' >/dev/kmsg") // a node has no real one
		l.run(ctx, "systemctl", "start", "gpuslotd.socket")
		if got := l.run(ctx, "stat", "-c", "%a", "/run/gpuslot", "/run/gpuslot/agent.sock"); got != "755\n666" {
			l.t.Errorf("modes of the directory and the socket: %q", got)
		}
		if a := l.tell("running", 0); len(a.Running) != 0 {
			l.t.Errorf("running: %v", a.Running)
		}
		if got := l.show(ctx, "gpuslotd", "ActiveState") + " " + l.show(ctx, "gpuslotd", "StatusText"); got != "active small agent" {
			l.t.Errorf("the agent is %q", got)
		}
		l.tell("proc", 0) // its sandbox lets it look at every process
		if a := l.tell("kmsg", 0); len(a.Lines) != 1 || a.Lines[0] != "6,1,1,-;hello" {
			l.t.Errorf("the kernel log, in its sandbox: %q", a.Lines)
		}
		// The file does not ask for it, the real one does.
		if got := l.show(ctx, "gpuslotd", "CapabilityBoundingSet"); !strings.Contains(got, "cap_syslog") {
			l.t.Errorf("capabilities %s", got)
		}
		for _, unit := range []string{"gpuslotd", systemd.MPSUnit(uuidA)} {
			if got := l.show(ctx, unit, "OOMScoreAdjust"); got != "-900" {
				l.t.Errorf("%s: OOMScoreAdjust %s", unit, got)
			}
		}
	})
	var pid int
	step("set starts and proves", func(l lab) {
		for _, r := range l.tell("set", 0, uuidA, uuidB).Results {
			if r.Action != mps.Started {
				l.t.Errorf("%+v", r)
			}
		}
		l.set(ctx, uuidA, uuidB)
		if a := l.tell("running", 0); !slices.Equal(a.Running, []gpu.UUID{uuidA, uuidB}) {
			l.t.Errorf("running: %v", a.Running)
		}
		pid = l.tell("prove", 0, uuidA).Checked.PID
		if got := l.show(ctx, systemd.MPSUnit(uuidA), "MainPID"); got != strconv.Itoa(pid) {
			l.t.Errorf("the unit's process is %s, the proven one %d", got, pid)
		}
		if got := l.run(ctx, "cat", "/run/modprobe"); got != "-u -c 0" {
			l.t.Errorf("nvidia-modprobe was called with %q", got)
		}
		if got := l.run(ctx, "stat", "-c", "%a %U:%G", root+"/"+string(uuidA)); got != "750 root:root" {
			l.t.Errorf("pipe directory: %q", got)
		}
	})
	step("its log is in a journal of its own", func(l lab) { testJournal(ctx, l, pid) })
	step("only admitted accounts get in", func(l lab) {
		uid, err := strconv.Atoi(l.run(ctx, "id", "-u", "alice"))
		if err != nil {
			l.t.Fatal(err)
		}
		l.tell("admit", uint32(uid), uuidA)
		for user, want := range map[string]string{"alice": "50.0", "bob": "Cannot find MPS control daemon process"} {
			res, _ := l.Exec(ctx, node.Cmd{
				Args: []string{"sh", "-c", "echo get_default_active_thread_percentage | nvidia-cuda-mps-control 2>&1"}, User: user,
				Env: map[string]string{"CUDA_MPS_PIPE_DIRECTORY": root + "/" + string(uuidA)},
			})
			if got := strings.TrimSpace(res.Stdout); got != want {
				l.t.Errorf("%s is answered %q, want %q", user, got, want)
			}
		}
	})
	step("a server is started as the account, in the sandbox of the unit", func(l lab) {
		res, err := l.Exec(ctx, node.Cmd{
			Args: []string{"sh", "-c", `echo "start_server -uid $(id -u)" | nvidia-cuda-mps-control`}, User: "alice",
			Env: map[string]string{"CUDA_MPS_PIPE_DIRECTORY": root + "/" + string(uuidA)},
		})
		if err != nil {
			l.t.Fatal(res, err)
		}
		l.wait(ctx, "the server is listed", func() bool { return len(l.tell("prove", 0, uuidA).Checked.Servers) == 1 })
		server := l.tell("prove", 0, uuidA).Checked.Servers[0]
		if got := l.run(ctx, "stat", "-c", "%U", "/proc/"+strconv.Itoa(server)); got != "alice" {
			l.t.Errorf("the server runs as %s", got)
		}
	})
	step("a job fills its own GPU's pipe directory and nothing else", func(l lab) {
		space := func(dir string) string { return l.run(ctx, "stat", "-f", "-c", "%f of %b blocks", dir) }
		before, other := space("/run"), space(root+"/"+string(uuidB))
		res, _ := l.Exec(ctx, node.Cmd{
			Args: []string{"sh", "-c", "cd " + root + "/" + string(uuidA) + `; for f in control_lock nvidia-cuda-mps-control.pid log gpuslot.lock more
do [ ! -p $f ] && dd if=/dev/zero of=$f bs=64k count=100000 2>&1; done
perl -e "$1" control_lock`, "sh", fill}, User: "alice",
		})
		if !strings.Contains(res.Stdout, "No space left on device") {
			l.t.Errorf("what a job wrote has an end elsewhere: %s", res.Stdout)
		}
		if full := space(root + "/" + string(uuidA)); !strings.HasPrefix(full, "0 of 256") {
			l.t.Errorf("the directory has %s free, want a full one of 1 MiB", full)
		}
		if after, now := space("/run"), space(root+"/"+string(uuidB)); after != before || now != other {
			l.t.Errorf("/run has %s free, before %s; the other GPU's directory %s, before %s", after, before, now, other)
		}
		if got := l.tell("prove", 0, uuidA).Checked.PID; got != pid { // and the next steps start it in there
			l.t.Errorf("process %d serves, before %d", got, pid)
		}
	})
	step("the agent's death leaves the daemons alone", func(l lab) {
		before := l.show(ctx, "gpuslotd", "MainPID")
		l.run(ctx, "systemctl", "kill", "-s", "KILL", "gpuslotd")
		l.wait(ctx, "another agent runs", func() bool {
			now := l.show(ctx, "gpuslotd", "MainPID")
			return now != before && now != "0" && l.show(ctx, "gpuslotd", "ActiveState") == "active"
		})
		for _, r := range l.tell("set", 0, uuidA, uuidB).Results {
			if r.Action != mps.Adopted || r.GPU == uuidA && r.PID != pid {
				l.t.Errorf("%+v, want process %d adopted", r, pid)
			}
		}
	})
	step("a killed daemon comes again with its admissions", func(l lab) {
		servers := l.tell("prove", 0, uuidA).Checked.Servers
		l.run(ctx, "kill", "-9", strconv.Itoa(pid))
		l.wait(ctx, "another daemon runs", func() bool {
			a, err := l.ask(order{Do: "alive", GPUs: []gpu.UUID{uuidA}})
			return err == nil && a.Err == "" && a.Process.PID != pid
		})
		var s systemd.State
		state(l, uuidA, &s)
		if s.ActiveState != "active" || s.NRestarts != 1 || int(s.MainPID) == pid {
			l.t.Errorf("state %+v", s)
		}
		if a := l.tell("admitted", 0, uuidA); len(a.UIDs) != 1 {
			l.t.Errorf("admitted after the restart: %v, want one", a.UIDs)
		}
		// It knows nothing of its limits, and the servers of the dead one are gone.
		if a, _ := l.ask(order{Do: "prove", GPUs: []gpu.UUID{uuidA}}); !strings.Contains(a.Err, "reads nothing") {
			l.t.Errorf("proof before the limits are set anew: %+v", a)
		}
		if len(servers) != 1 || l.run(ctx, "sh", "-c", fmt.Sprintf("test -e /proc/%d && echo lives || true", servers[0])) != "" {
			l.t.Errorf("servers %v", servers)
		}
		l.set(ctx, uuidA, uuidB)
		pid = l.tell("prove", 0, uuidA).Checked.PID
	})
	step("a quit by hand is not the end", func(l lab) {
		l.run(ctx, "sh", "-c", "echo quit | CUDA_MPS_PIPE_DIRECTORY="+root+"/"+string(uuidB)+" nvidia-cuda-mps-control")
		l.wait(ctx, "it runs again", func() bool {
			a, err := l.ask(order{Do: "state", GPUs: []gpu.UUID{uuidB}})
			m, _ := a.State.(map[string]any)
			return err == nil && m["ActiveState"] == "active" && m["NRestarts"] == 1.0
		})
	})
	step("what is no longer wanted is stopped", func(l lab) {
		for _, r := range l.tell("set", 0, uuidA).Results {
			if want := map[gpu.UUID]mps.Action{uuidA: mps.Adopted, uuidB: mps.Stopped}[r.GPU]; r.Action != want || r.Err != "<nil>" {
				l.t.Errorf("%+v, want %s", r, want)
			}
		}
		if got := l.run(ctx, "ls", root); got != string(uuidA) {
			l.t.Errorf("pipe directories: %q", got)
		}
		l.tell("stop", 0, uuidB) // nothing to do
		var s systemd.State
		state(l, uuidB, &s)
		if s.ActiveState != "inactive" || s.MainPID != 0 {
			l.t.Errorf("state %+v", s)
		}
	})
	step("a daemon gets the flags of its file", func(l lab) {
		if branch == "535" || branch == "550" {
			l.t.Skip("this driver has no flag to give")
		}
		l.run(ctx, "mkdir", "-p", "/run/gpuslot/mps-flags")
		l.run(ctx, "sh", "-c", "echo GPUSLOT_MPS_FLAGS=-multiuser-server >/run/gpuslot/mps-flags/"+string(uuidB))
		l.tell("start", 0, uuidB)
		args := l.run(ctx, "sh", "-c", "tr '\\0' ' ' </proc/"+l.show(ctx, systemd.MPSUnit(uuidB), "MainPID")+"/cmdline")
		if args != "/usr/bin/nvidia-cuda-mps-control -multiuser-server -f" {
			l.t.Errorf("started as %q", args)
		}
		l.tell("stop", 0, uuidB)
		l.run(ctx, "rm", "-r", "/run/gpuslot/mps-flags")
	})
	step("a daemon that hangs is stopped", func(l lab) {
		l.run(ctx, "kill", "-STOP", strconv.Itoa(pid))
		a, _ := l.ask(order{Do: "prove", GPUs: []gpu.UUID{uuidA}})
		if !strings.Contains(a.Err, "suspended") {
			l.t.Errorf("%+v", a)
		}
		l.tell("stop", 0, uuidA)
		if got := l.run(ctx, "ls", root); got != "" {
			l.t.Errorf("pipe directories: %q", got)
		}
		if got := l.run(ctx, "sh", "-c", "grep "+root+" /proc/mounts || true; systemctl --failed --plain --no-legend"); got != "" {
			l.t.Errorf("left behind: %s", got)
		}
	})
	step("a missing program is said", func(l lab) {
		l.run(ctx, "umount", "/usr/bin/nvidia-cuda-mps-control")
		l.run(ctx, "rm", "-f", "/usr/bin/nvidia-cuda-mps-control")
		a, err := l.ask(order{Do: "start", GPUs: []gpu.UUID{uuidA}})
		if err != nil || !strings.Contains(a.Err, "status 203") || !strings.Contains(a.Err, "journalctl --namespace=+gpuslot -u") {
			l.t.Errorf("start: %+v, %v", a, err)
		}
		a = l.tell("set", 0, uuidB)
		for _, r := range a.Results {
			if r.GPU == uuidB && !strings.Contains(r.Err, "install the package") {
				l.t.Errorf("set: %+v", r)
			}
		}
		l.tell("stop", 0, uuidA)
	})
	step("no job gets the port of metrics while the agent is restarted", func(l lab) { testPort(ctx, l) })
	step("a hanging agent is restarted", func(l lab) {
		l.run(ctx, "sh", "-c", "mkdir -p /etc/systemd/system/gpuslotd.service.d && "+
			"printf '[Service]\nWatchdogSec=1s\n' >/etc/systemd/system/gpuslotd.service.d/w.conf && systemctl daemon-reload && systemctl restart gpuslotd")
		before := l.show(ctx, "gpuslotd", "MainPID")
		l.tell("hang", 0)
		l.wait(ctx, "another agent runs", func() bool {
			now := l.show(ctx, "gpuslotd", "MainPID")
			return now != before && now != "0"
		})
		journal, err := l.Journal(ctx, "gpuslotd.service")
		if err != nil || !strings.Contains(journal, "Watchdog timeout") {
			l.t.Errorf("the journal: %v\n%s", err, journal)
		}
	})
}

// fill gives a file all the extended attributes that there is room for, by setxattr(2). Linux before 6.6 has none in a
// tmpfs.
const fill = `for my $size (60000, 1000, 10) {
	my $value = "x" x $size;
	while (syscall(188, $ARGV[0], "user.a" . $n, $value, $size, 0) == 0) { $n++ }
}`

// testPort has a process try for the port all the time. Only a stop of the agent lets
// it have it.
func testPort(ctx context.Context, l lab) {
	answers := func() bool {
		out := l.run(ctx, "bash", "-c", "exec 3<>/dev/tcp/"+strings.Replace(scrapes, ":", "/", 1)+" && cat <&3")
		return out == l.show(ctx, "gpuslotd", "MainPID")
	}
	l.run(ctx, "systemd-run", "--unit=spin", "/usr/sbin/gpuslotd", "spin")
	for _, how := range []string{"systemctl restart gpuslotd", "systemctl kill -s KILL gpuslotd", "systemctl restart gpuslotd"} {
		before := l.show(ctx, "gpuslotd", "MainPID")
		l.run(ctx, "sh", "-c", how)
		l.wait(ctx, "the next agent answers scrapes after "+how, func() bool {
			return l.show(ctx, "gpuslotd", "MainPID") != before && l.show(ctx, "gpuslotd", "ActiveState") == "active" && answers()
		})
		if got := l.run(ctx, "sh", "-c", "ls "+won+" 2>&1 || true"); got == won {
			l.t.Fatal("a job got the port at " + how)
		}
	}
	l.run(ctx, "systemctl", "stop", "gpuslotd.socket", "gpuslotd.service")
	l.wait(ctx, "the job has the port of a stopped agent", func() bool { return l.run(ctx, "sh", "-c", "ls "+won+" 2>&1 || true") == won })
	l.run(ctx, "systemctl", "stop", "spin")
	l.run(ctx, "systemctl", "start", "gpuslotd.socket", "gpuslotd.service")
}
