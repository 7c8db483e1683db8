package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/gpuslot/gpuslot/gpu"
)

const uuid0 gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"

// TestUnits holds the directives on which the design rests.
func TestUnits(t *testing.T) {
	want := map[string][]string{
		"gpuslotd.service": {
			"Type=notify", "WatchdogSec=30s", "Restart=always", "Before=condor.service", "Before=cron.service crond.service atd.service",
			"After=nvidia-persistenced.service", "Wants=gpuslotd.socket", "After=gpuslotd.socket", "RuntimeDirectory=gpuslot", "RuntimeDirectoryMode=0755",
			"RuntimeDirectoryPreserve=yes", "StateDirectory=gpuslot", "ConfigurationDirectory=gpuslot",
			"ExecStart=/usr/sbin/gpuslotd", "ExecReload=/bin/kill -HUP $MAINPID", "StartLimitIntervalSec=0",
			"MemoryMax=4G", "Environment=GOMEMLIMIT=1GiB", "TasksMax=1024", "OOMPolicy=continue", "FileDescriptorStoreMax=2",
			"NoNewPrivileges=yes", "ProtectSystem=strict", "Also=gpuslotd.socket", "WantedBy=multi-user.target",
		},
		"gpuslotd.socket": {
			"ListenStream=/run/gpuslot/agent.sock", "SocketMode=0666", "DirectoryMode=0755",
			"FileDescriptorName=agent", "Backlog=4096", "TriggerLimitIntervalSec=0", "WantedBy=sockets.target",
		},
		"gpuslot-mps@.service": {
			"Type=exec", "ExecStart=/usr/bin/nvidia-cuda-mps-control $GPUSLOT_MPS_FLAGS -f", "StandardInput=null",
			"Environment=CUDA_VISIBLE_DEVICES=%i", "Environment=CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/%i",
			"Requires=gpuslot-mps-dir@%i.service", "After=gpuslot-mps-dir@%i.service", "ReadWritePaths=/run/gpuslot/mps/%i",
			"Restart=always", "SuccessExitStatus=1", "KillMode=control-group", "StartLimitIntervalSec=0",
			"TasksMax=4096", "OOMPolicy=continue",
			"NoNewPrivileges=yes", "ProtectSystem=strict", "LogNamespace=" + JournalNamespace,
		},
		"gpuslot-mps-dir@.service": {
			"Type=oneshot", "RemainAfterExit=yes", "StopWhenUnneeded=yes", "RuntimeDirectory=gpuslot/mps/%i", "RuntimeDirectoryMode=0750",
			"ExecStop=/usr/bin/umount -l /run/gpuslot/mps/%i", "NoNewPrivileges=yes",
			"MemoryMax=256M", "TasksMax=16",
		},
		"systemd-journald@" + JournalNamespace + ".service.d/10-gpuslot.conf": {"Restart=always", "StartLimitIntervalSec=0"},
	}
	// What would break a GPU, a server or the agent's life beside MPS.
	never := []string{
		"PrivateDevices=", "DevicePolicy=", "DeviceAllow=", "ProtectClock=", "PrivateNetwork=", "PrivateUsers=",
		"PrivateIPC=", "DynamicUser=", "ProtectProc=", "MemoryDenyWriteExecute=", "PartOf=", "BindsTo=", "PIDFile=",
	}
	for name, directives := range want {
		lines := unitLines(t, name)
		for _, d := range directives {
			if !slices.Contains(lines, d) {
				t.Errorf("%s lacks %s", name, d)
			}
		}
		for _, line := range lines {
			if slices.ContainsFunc(never, func(d string) bool { return strings.HasPrefix(line, d) }) {
				t.Errorf("%s has %s", name, line)
			}
			// %I and %f turn the dashes of a UUID into slashes.
			if strings.Contains(line, "%I") || strings.Contains(line, "%f") {
				t.Errorf("%s: %s does not name the UUID", name, line)
			}
		}
	}
	entries, err := os.ReadDir("units")
	if len(entries) != len(want) || err != nil {
		t.Errorf("units %v, %v; want %d", entries, err, len(want))
	}
	limit, err := strconv.Atoi(directive(unitLines(t, "gpuslot-mps@.service"), "LimitNOFILE"))
	if err != nil || limit < 16384 {
		t.Errorf("LimitNOFILE is %d, %v; NVIDIA asks for 16384", limit, err)
	}
	// What is out of memory there ends every job of the GPU: docs/hardening.md.
	for _, key := range []string{"MemoryMax", "MemoryHigh"} {
		if bound := directive(unitLines(t, "gpuslot-mps@.service"), key); bound != "" {
			t.Errorf("MPS servers are bound by %s=%s", key, bound)
		}
	}
	path := directive(unitLines(t, "gpuslot-mps@.service"), "Environment=PATH")
	if !slices.Contains(filepath.SplitList(path), "/usr/sbin") {
		t.Errorf("Debian's nvidia-cuda-mps-server is not on the PATH %s", path)
	}
}

func unitLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile("units/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func directive(lines []string, key string) string {
	for _, line := range lines {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return value
		}
	}
	return ""
}

// TestVerify has systemd's own tool read the units, with programs in the place
// of those that the units start. Any output is a fault: unknown keys are only warnings.
func TestVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	var names []string
	for _, u := range []struct{ name, file string }{
		{"gpuslotd.service", "gpuslotd.service"}, {"gpuslotd.socket", "gpuslotd.socket"},
		{"gpuslot-mps@.service", MPSUnit(uuid0)}, {"gpuslot-mps-dir@.service", directoryUnit(uuid0)},
	} {
		b, err := os.ReadFile("units/" + u.name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("/usr/sbin/gpuslotd", "/bin/true", "/usr/bin/nvidia-cuda-mps-control", "/bin/true",
			"/usr/bin/nvidia-modprobe", "/bin/true").Replace(string(b))
		file := filepath.Join(dir, u.file)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, file)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemd-analyze", append([]string{"verify", "--man=no"}, names...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestUnitNames(t *testing.T) {
	mig := gpu.UUID("MIG-11111111-1111-4111-8111-111111111111")
	for _, u := range []gpu.UUID{uuid0, mig} {
		if got, ok := gpuOf(MPSUnit(u)); got != u || !ok {
			t.Errorf("%s came back as %s, %v", u, got, ok)
		}
	}
	for _, name := range []string{
		"", "gpuslotd.service", "gpuslot-mps@.service", "gpuslot-mps@GPU-1.service", "gpuslot-mps@" + string(uuid0),
		"gpuslot-mps@" + string(uuid0) + ".socket", "x" + MPSUnit(uuid0), MPSUnit("GPU-AAAAAAAA-0000-4000-8000-000000000000"),
	} {
		if u, ok := gpuOf(name); ok {
			t.Errorf("%q is taken for the unit of %s", name, u)
		}
	}
	// A name that is no UUID never reaches systemd.
	for _, u := range []gpu.UUID{"", "a.service; reboot", "../x"} {
		if err := (MPSUnits{}).Stop(t.Context(), u); err == nil || !strings.Contains(err.Error(), "no GPU UUID") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestRunning(t *testing.T) {
	other := gpu.UUID("GPU-11111111-1111-4111-8111-111111111111")
	got := running([]dbus.UnitStatus{
		{Name: MPSUnit(other), ActiveState: "activating"}, // waits for its restart
		{Name: MPSUnit("GPU-22222222-2222-4222-8222-222222222222"), ActiveState: "failed"},
		{Name: MPSUnit("GPU-33333333-3333-4333-8333-333333333333"), ActiveState: "inactive"},
		{Name: "gpuslot-mps@rubbish.service", ActiveState: "active"},
		{Name: MPSUnit(uuid0), ActiveState: "active"},
	})
	if want := []gpu.UUID{uuid0, other}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestJobFailureSaysWhereToLook(t *testing.T) {
	s := State{ActiveState: "activating", Result: "exit-code", ExecMainStatus: 203}
	err := s.failed("start", MPSUnit(uuid0), "failed")
	for _, want := range []string{"start gpuslot-mps@" + string(uuid0), "exit-code", "203", "journalctl --namespace=+gpuslot -u"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := wait(ctx, func(chan<- string) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := wait(t.Context(), func(done chan<- string) error { done <- "done"; return nil }); got != "done" || err != nil {
		t.Error(got, err)
	}
}

// fakeManager listens as the service manager does.
func fakeManager(t *testing.T) func() string {
	t.Helper()
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	l, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	return func() string {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestManager(t *testing.T) {
	heard := fakeManager(t)
	var m Manager
	for _, step := range []struct {
		say  func() error
		want string
	}{
		{m.Reloading, "RELOADING=1"},
		{func() error { return m.Status("8 GPUs\nREADY=1") }, "STATUS=8 GPUs READY=1"},
		{m.Ready, "READY=1"},
		{m.Alive, "WATCHDOG=1"},
	} {
		if err := step.say(); err != nil {
			t.Error(err)
		}
		if got := heard(); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

func TestManagerWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var m Manager
	if err := errors.Join(m.Ready(), m.Reloading(), m.Status("x"), m.Alive()); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "tell systemd") {
		t.Errorf("a dead manager: %v", err)
	}
}

func TestWatchdogInterval(t *testing.T) {
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	for usec, want := range map[string]time.Duration{"30000000": 10 * time.Second, "": 0} {
		t.Setenv("WATCHDOG_USEC", usec)
		if got, err := (Manager{}).WatchdogInterval(); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", usec, got, err, want)
		}
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := (Manager{}).WatchdogInterval(); err == nil {
		t.Error("no error")
	}
}

func TestSocketsWithoutSystemd(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	s, err := TakeSockets()
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Listeners("agent"); l != nil {
		t.Errorf("took another process's sockets: %v", l)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
