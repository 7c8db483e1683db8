package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// equal compares whole configurations.
func equal(t *testing.T, want, got Config) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Config{}, table{}, hostTable{})); d != "" {
		t.Errorf("configurations (-want +got):\n%s", d)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{write("empty.toml", ""), os.DevNull} {
		c, err := Load(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		equal(t, Default(), c)
	}
	bad := write("bad.toml", "[sharing]\nshares = 0\n")
	if _, err := Load(bad); err == nil || err.Error() != bad+`:2: sharing.shares = 0: write a number of jobs from 1 to 60, or "auto"` {
		t.Errorf("the error is %v", err)
	}
	huge := write("huge.toml", strings.Repeat("#", 10<<20))
	if _, err := Load(huge); err == nil || err.Error() != huge+": the file is larger than 1048576 bytes; is it a gpuslot.toml?" {
		t.Errorf("the error is %v", err)
	}
	largest := write("largest.toml", strings.Repeat("#\n", maxFileBytes/2))
	if _, err := Load(largest); err != nil {
		t.Errorf("a file of just the greatest size: %v", err)
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	missing, pipe := filepath.Join(dir, "missing.toml"), filepath.Join(dir, "pipe")
	if _, err := Load(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "an empty file there means all defaults") {
		t.Errorf("a missing file: %v", err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe} { // opening the pipe would wait for ever
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestParseReadsEveryKey(t *testing.T) {
	got := parse(t, `
[request_vram]
minimum = 1024
quantum = 256
without_request = "share"
[cpu_only]
cpus = 4
memory = "12.5%"
[health]
interval = "30s"
open = "after-verify"
unattached = "kill"
attach_within = "1m"
[budgets]
enforce = "report"
grace = "30s"
[usage]
interval = "500ms"
dcgm = "http://[::1]:9400/metrics"
[repartition]
dwell = "5m"
reserve_after = "2h"
reserve_for = "24h"
[htcondor]
manage = false
supervise = false
job_wrapper = "/opt/site/wrapper"
changes = "drain"
layout = "startd-per-gpu"
execute = "/scratch/gpuslot"
[metrics]
listen = "[::1]:9848"
web_config = "/etc/gpuslot/web.yml"
job_labels = "job-and-user"
[paths]
run = "/run/g"
state = "/var/lib/g"
control_daemon = "/opt/nvidia/bin/nvidia-cuda-mps-control"
libexec = "/opt/g/libexec"
`)
	want := Default()
	want.RequestVRAM = RequestVRAM{Minimum: 1024, Quantum: 256, WithoutRequest: WithoutRequestShare}
	want.CPUOnly = CPUOnly{CPUs: Amount{N: 4}, Memory: Amount{Percent: 12.5}}
	want.Health = Health{
		Interval: 30 * time.Second,
		Open:     OpenAfterVerify, Unattached: EnforceKill, AttachWithin: time.Minute,
	}
	want.Budgets = Budgets{Enforce: EnforceReport, Grace: 30 * time.Second}
	want.Usage = Usage{Interval: 500 * time.Millisecond, DCGM: "http://[::1]:9400/metrics"}
	want.Repartition = Repartition{Dwell: 5 * time.Minute, ReserveAfter: 2 * time.Hour, ReserveFor: 24 * time.Hour}
	want.HTCondor = HTCondor{Manage: false, Supervise: false, JobWrapper: "/opt/site/wrapper", Layout: LayoutStartdPerGPU, Execute: "/scratch/gpuslot", Changes: ChangesDrain}
	want.Metrics = Metrics{Listen: "[::1]:9848", WebConfig: "/etc/gpuslot/web.yml", JobLabels: JobLabelsJobAndUser}
	want.Paths = Paths{Run: "/run/g", State: "/var/lib/g", ControlDaemon: "/opt/nvidia/bin/nvidia-cuda-mps-control", Libexec: "/opt/g/libexec"}
	equal(t, want, got)
}

func TestCondorConfigFollowsRun(t *testing.T) {
	if got := parse(t, "[paths]\nrun = \"/run/g\"").Paths.CondorConfig(); got != "/run/g/condor/execution-point.conf" {
		t.Errorf("the configuration is %s", got)
	}
}

func TestListen(t *testing.T) {
	for _, listen := range []string{"", ":9847", "0.0.0.0:9847", "[::]:9847", "[fe80::1%eth0]:9847", "wn-gpu1.example.org:1"} {
		if got := parse(t, "[metrics]\nlisten = \""+listen+"\"").Metrics.Listen; got != listen {
			t.Errorf("listen = %q reads as %q", listen, got)
		}
	}
}

func TestWarnings(t *testing.T) {
	c := parse(t, `
[host."wn-gpu1"]
shares = 4
[sharing]
compute_mode = "default"
tenancy = "common:gpujobs"
largest_request = 16000
reserved_vram = 0
[model."Tesla V100S-PCIE-32GB"]
compute_mode = "keep"
tenancy = "one-at-a-time"
largest_request = 16384
[paths]
state = "/run/gpuslot-state"
[growth]
early_percent = 95
`)
	want := []string{
		`gpuslot.toml:5: sharing.compute_mode = "default": nothing stops a job that drops its pipe directory: it runs beside MPS, without a memory limit`,
		`gpuslot.toml:6: sharing.tenancy = "common:gpujobs": all jobs run as gpujobs, without isolation by account: they can read, signal and debug each other`,
		`gpuslot.toml:7: sharing.largest_request = 16000: budgets are multiples of 512 MiB (request_vram.quantum), so the largest will be 15872`,
		`gpuslot.toml:8: sharing.reserved_vram = 0: the driver uses some VRAM that it lists of no process: the last job on a full GPU may find less than its budget`,
		`gpuslot.toml:14: paths.state = "/run/gpuslot-state": the directory is empty after a reboot, and with it what gpuslot would have to undo; write one below /var/lib`,
		`gpuslot.toml:16: growth.early_percent = 95: it has no effect while growth.retries is 0`,
	}
	if d := cmp.Diff(want, c.Warnings); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	if c := parse(t, ""); len(c.Warnings) != 0 {
		t.Errorf("the defaults warn: %q", c.Warnings)
	}
}

func TestAmount(t *testing.T) {
	for _, x := range []struct {
		amount      Amount
		total, want int64
	}{
		{Amount{N: 4}, 64, 4}, {Amount{N: 99}, 64, 99}, {Amount{}, 64, 0},
		{Amount{Percent: 10}, 64, 6}, {Amount{Percent: 10}, 9, 0}, {Amount{Percent: 99.9}, 1000, 999},
		{Amount{Percent: 14.7}, 1000, 147}, {Amount{Percent: 0.1}, 1000, 1}, {Amount{Percent: 29}, 100, 29}, {Amount{Percent: 10}, 393216, 39321},
	} {
		if got := x.amount.Of(x.total); got != x.want {
			t.Errorf("%+v of %d is %d; want %d", x.amount, x.total, got, x.want)
		}
	}
}

// TestFollows: what follows from a key, where a key of its own is gone.
func TestFollows(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"the age of a health check", Health{Interval: 15 * time.Second}.MaxAge(), time.Minute},
		{"that of checks each half minute", Health{Interval: 30 * time.Second}.MaxAge(), 2 * time.Minute},
		{"the limit of a small budget", Budgets{}.Limit(4096), gpu.MiB(4352)},
		{"that of a large budget", Budgets{}.Limit(40960), gpu.MiB(43008)},
		{"changes an hour", Default().Repartition.Rules(mig.Auto).PerHour, 6},
		{"those of devices that may go at once", Repartition{}.Rules(mig.Auto).PerHour, 60},
		{"those of devices that stay for a day", Repartition{Dwell: 24 * time.Hour}.Rules(mig.Auto).PerHour, 1},
		{"the time between two looks", Default().Repartition.Interval(), time.Minute},
		{"that of devices that may go at once", Repartition{}.Interval(), time.Second},
		{"that of devices that stay shortly", Repartition{Dwell: 100 * time.Second}.Interval(), 10 * time.Second},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// mostKeys is how many keys gpuslot.toml has. A further one needs a site that sets it.
const mostKeys = 55

func TestFewKeys(t *testing.T) {
	t.Logf("figure: gpuslot.toml has %d keys (at most %d), %d of them outside the appendix", len(Keys()), mostKeys, len(exampleKeys(t)))
	if len(Keys()) > mostKeys {
		t.Errorf("%d keys, want %d at most", len(Keys()), mostKeys)
	}
}
