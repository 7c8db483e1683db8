package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/doctor"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// The files of a report that its plan follows from.
const (
	bundleManifest  = "report.json"
	bundleConfig    = "config/gpuslot.toml"
	bundleInventory = "inventory.json"
	bundlePlan      = "plan.json"
)

// condorPattern are the settings of HTCondor that concern GPUs and jobs on them.
const condorPattern = "GPU|^SLOT|_START$|^START$|HOOK|STARTD_CRON|WRAPPER|MACHINE_RESOURCE|DAEMON_LIST|" +
	"SCRATCH|CGROUP|^EXECUTE|ENVIRONMENT_FOR|STARTER_JOB_ENVIRONMENT|" +
	"SINGULARITY|DOCKER|MOUNT_|SLOT_WEIGHT|NUM_CPUS|MEMORY$|^RESERVED_|MAX_SLOT_TYPES"

// nodeSources are the sources of this node.
type nodeSources struct {
	command     *cobra.Command
	flags       *flags
	inventories []string
	withJobs    bool

	config    config.Config
	status    api.Status
	statusErr error
	plan      plan.Plan
	veil      *veil
}

// begin finds what other sources need: paths, and the names to be left out.
func (n *nodeSources) begin(ctx context.Context) {
	var err error
	if n.config, err = loadConfig(n.command, n.flags.config); err != nil {
		n.config = config.Default()
	}
	ctx, cancel := context.WithTimeout(ctx, commandDeadline)
	defer cancel()
	n.status, n.statusErr = api.AskStatus(ctx, n.flags.socket)
	if p, err := plan.Read(n.config.Paths.PlanFile()); err == nil {
		n.plan = p
	}
	n.veil = newVeil(n.withJobs)
	n.veil.learn(n.config.Paths, n.status)
}

func (n *nodeSources) list() []source {
	run, state := n.config.Paths.Run, n.config.Paths.State
	sources := []source{
		{name: "versions.json", from: "this machine", deadline: commandDeadline, read: n.versions},
		{name: bundleInventory, from: "NVML", deadline: driverDeadline, read: n.inventory, raw: true},
	}
	if _, err := os.Stat(n.flags.config); err == nil {
		s := fileSource(bundleConfig, n.flags.config)
		read := s.read
		s.read = func(ctx context.Context) ([]byte, error) {
			text, err := read(ctx)
			return withoutSecrets(text), err
		}
		s.raw = true
		sources = append(sources, s)
	}
	inForce := fileSource(bundlePlan, n.config.Paths.PlanFile())
	inForce.raw = true
	sources = append(sources, inForce,
		source{name: "doctor.json", from: "gpuslot doctor", deadline: driverDeadline, read: n.doctor},
		source{name: "status.json", from: "the agent", deadline: shortDeadline, read: n.statusText},
		source{name: "metrics.txt", from: n.config.Metrics.Listen, deadline: shortDeadline, read: n.metrics},
		source{name: "history.jsonl", from: filepath.Join(state, "history"), deadline: shortDeadline, read: n.history},
		fileSource("condor/execution-point.conf", n.config.Paths.CondorConfig()),
		command("condor/version.txt", "condor_version"),
		command("condor/files.txt", "condor_config_val", "-config"),
		command("condor/settings.txt", "condor_config_val", "-dump", condorPattern),
		command("units.txt", "systemctl", "show", "--no-pager", "-p",
			"Id,ActiveState,SubState,Result,NRestarts,ExecMainPID,ExecMainStatus,ActiveEnterTimestamp,FragmentPath,DropInPaths",
			"gpuslotd.service", "gpuslotd.socket", "gpuslot-mps@*.service", "gpuslot-mps-dir@*.service", "condor.service",
			"nvidia-persistenced.service"),
		command("logs/gpuslotd.log", "journalctl", "--no-pager", "-o", "short-iso", "-n", "5000", "-u", "gpuslotd.service",
			"-u", "gpuslotd.socket"),
		command("logs/kernel.log", "journalctl", "--no-pager", "-o", "short-iso", "-n", "2000", "-k", "-g",
			"NVRM|nvidia|oom"),
		n.daemonsLog(),
	)
	// Where there is nothing to keep, there is no such file.
	for _, s := range []source{
		fileSource("state/holds.json", n.config.Paths.ClosuresFile()),
		fileSource("state/quiesced.json", filepath.Join(state, "quiesced.json")),
		fileSource("state/undo.json", filepath.Join(state, "undo.json")),
		fileSource("run/troubles.json", filepath.Join(run, "troubles.json")),
		fileSource("run/verified.json", filepath.Join(run, "verified.json")),
	} {
		if _, err := os.Stat(s.from); !errors.Is(err, fs.ErrNotExist) {
			sources = append(sources, s)
		}
	}
	return sources
}

// daemonsLog is the journal of the control daemons.
func (n *nodeSources) daemonsLog() source {
	s := command("logs/mps.log", "journalctl", "--no-pager", "-o", "short-iso", "-n", "5000", "--namespace=gpuslot")
	for _, g := range n.plan.GPUs {
		if g.Tenancy.Policy == config.TenancyMultiUser && !n.withJobs {
			s.read = func(context.Context) ([]byte, error) {
				return nil, errors.New(`with tenancy = "multi-user" it shows the command lines of jobs; --with-jobs leaves it in`)
			}
		}
	}
	return s
}

// command is what a program prints.
func command(file, name string, args ...string) source {
	return source{name: file, from: strings.Join(append([]string{name}, args...), " "), deadline: commandDeadline,
		read: func(ctx context.Context) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, commandDeadline)
			defer cancel()
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.WaitDelay = time.Second
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil && stdout.Len() == 0 {
				first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
				if first == "" {
					return nil, err
				}
				return nil, fmt.Errorf("%w: %.200s", err, first)
			}
			return stdout.Bytes(), nil
		}}
}

// versions are those of what gpuslot stands on.
func (n *nodeSources) versions(ctx context.Context) ([]byte, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	said := struct {
		Gpuslot  build  `json:"gpuslot"`
		Agent    string `json:"gpuslotd,omitempty"`
		Kernel   string `json:"kernel"`
		Arch     string `json:"arch"`
		System   string `json:"system,omitempty"`
		Systemd  string `json:"systemd,omitempty"`
		HTCondor string `json:"htcondor,omitempty"`
		Driver   string `json:"nvidia,omitempty"`
		CgroupV2 bool   `json:"cgroup_v2"`
	}{Gpuslot: thisBuild(), Agent: n.status.Version, Kernel: unix.ByteSliceToString(u.Release[:]), Arch: runtime.GOARCH,
		HTCondor: n.status.HTCondor}
	release, _ := os.ReadFile("/etc/os-release") // what cannot be read is left out
	for line := range strings.Lines(string(release)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			said.System = strings.Trim(name, "\"\n")
		}
	}
	if text, err := command("", "systemctl", "--version").read(ctx); err == nil {
		said.Systemd, _, _ = strings.Cut(string(text), "\n")
	}
	driver, _ := os.ReadFile("/proc/driver/nvidia/version")
	said.Driver = strings.TrimSpace(string(driver))
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	said.CgroupV2 = err == nil
	return encoded(said)
}

func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	err := show.JSON(&b, v)
	return b.Bytes(), err
}

func (n *nodeSources) inventory(ctx context.Context) ([]byte, error) {
	inv, _, err := readInventory(ctx, n.inventories)
	if err != nil {
		return nil, err
	}
	return inv.Encode()
}

func (n *nodeSources) doctor(ctx context.Context) ([]byte, error) {
	cfg, err := loadConfig(n.command, n.flags.config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	node := doctor.Node{Config: cfg, ConfigErr: err, Socket: n.flags.socket}
	found, err := doctor.Examine(ctx, node, "", io.Discard)
	if err != nil {
		return nil, err
	}
	return encoded(found)
}

func (n *nodeSources) statusText(context.Context) ([]byte, error) {
	if n.statusErr != nil {
		return nil, n.statusErr
	}
	return encoded(n.status)
}

// metrics asks the agent's own listener.
func (n *nodeSources) metrics(ctx context.Context) ([]byte, error) {
	switch m := n.config.Metrics; {
	case m.Listen == "":
		return nil, errors.New("metrics.listen is empty")
	case m.WebConfig != "":
		return nil, errors.New("metrics.web_config asks for TLS or a password")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.config.Metrics.Listen+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	// Who has the port while the agent restarts leads root nowhere else.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %.80q", reply.Status)
	}
	text, err := io.ReadAll(io.LimitReader(reply.Body, mostOfSource))
	if n.withJobs {
		return text, err
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("gpuslot_slot_info{")) {
			kept.Write(line)
		}
	}
	return kept.Bytes(), err
}

// history is the newest part of what the agent noted. What it says of jobs is said
// in sentences that name users.
func (n *nodeSources) history(context.Context) ([]byte, error) {
	events, err := history.Events(n.config.Paths)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, errors.New("no events")
	}
	var b bytes.Buffer
	for _, e := range events[max(0, len(events)-10000):] {
		if !n.withJobs && e.Job != "" {
			e.Text = ""
		}
		if err := json.NewEncoder(&b).Encode(e); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
