// Command gpuslotd is the agent of one worker node. It chooses the real
// adapters, NVML or a recorded inventory, systemd or plain processes, and
// hands them to package agent. Start at run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/systemd"
)

// version and commit are set by the build: -ldflags "-X main.version=…".
var (
	version = "devel"
	commit  string
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case clientVerb:
			os.Exit(cuda.Main(os.Args[2:], os.Stdin, os.Stdout))
		case driverVerb:
			os.Exit(tryDriver(os.Stdout))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := command(os.Stderr).ExecuteContext(ctx)
	if errors.Is(err, agent.ErrStartAgain) && ctx.Err() == nil {
		err = startAgain()
	}
	if err != nil && !errors.Is(err, agent.ErrStartAgain) {
		fmt.Fprintln(os.Stderr, "gpuslotd: "+err.Error())
		os.Exit(codeOf(err))
	}
}

// wrongUsage is an error of the command line.
type wrongUsage struct{ error }

// codeOf is the exit code for an error, as gpuslot has it: 2 for the command line, else 1.
func codeOf(err error) int {
	if errors.As(err, new(wrongUsage)) {
		return 2
	}
	return 1
}

// startAgain makes a new process of this program: systemd does so when this one
// ends (Restart=always), elsewhere it takes this one's place.
func startAgain() error {
	if os.Getenv("NOTIFY_SOCKET") != "" {
		return nil
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// flags are the command line.
type flags struct {
	config    string
	inventory string
	socket    string
	noSystemd bool
	logLevel  string
	release   bool
	force     bool
}

func command(logs io.Writer) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "gpuslotd",
		Short: "Share this node's NVIDIA GPUs among HTCondor jobs",
		Long: `gpuslotd reads gpuslot.toml and the node's GPUs, runs one MPS control daemon
per shared GPU, writes the execution point's configuration, and admits jobs.

SIGHUP reads the configuration again; a broken one is rejected and the plan in
force stays. SIGTERM ends gpuslotd alone: control daemons and jobs live on.`,
		Args:          noArgs,
		Version:       version + " (commit " + build().Revision + ", " + runtime.Version() + ")",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return run(c.Context(), f, logs) },
	}
	c.SetVersionTemplate("gpuslotd {{.Version}}\n")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrongUsage{err} })
	p := c.Flags()
	p.SortFlags = false
	p.StringVar(&f.config, "config", config.DefaultPath, "configuration `file`")
	p.StringVar(&f.inventory, "inventory", "",
		"read the GPUs from a recorded inventory `file` instead of NVML; it is read again in every round")
	p.StringVar(&f.socket, "socket", "", "listen on this `path` where systemd hands over no socket (default "+
		"<paths.run>/agent.sock)")
	p.BoolVar(&f.noSystemd, "no-systemd", false, "run control daemons as plain processes")
	p.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	p.BoolVar(&f.release, "release", false, "undo everything and exit: "+
		"stop control daemons, restore compute modes, remove generated files; gpuslotd must not run")
	p.BoolVar(&f.force, "force", false, "with --release: although jobs run, whose MPS servers then end")
	return c
}

func noArgs(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err != nil {
		return wrongUsage{err}
	}
	return nil
}

// run is straight wiring of the real adapters.
func run(ctx context.Context, f flags, logs io.Writer) error {
	log, err := logger(logs, f.logLevel)
	if err != nil {
		return wrongUsage{err}
	}
	if f.force && !f.release {
		return wrongUsage{errors.New("--force goes with --release only")}
	}
	o := agent.Options{
		ConfigFile: f.config,
		Build:      build(),
		Log:        log,
		Startd:     startd.Programs{},
		Settings:   condor.InstalledSettings,
		Pool:       startd.Programs{},
		Socket:     f.socket,
	}
	if f.inventory != "" {
		o.Hardware, o.WaitForHardware = hardware.Recorded{Path: f.inventory}, true
	} else {
		hw := &nvmlHardware{}
		defer hw.close()
		o.Hardware, o.Usage, o.Alarms, o.KernelLog, o.CUDA = hw, hw, hw, faults.KernelLog, startClient
		o.MemoryLimits, o.Cgroups, o.DriverMismatch = hw.memoryLimits, hw, driverMismatch
		o.DeviceNodes = devices.Kernel{}
		if o.MIG, err = migExecutor(hw); err != nil {
			return err
		}
		o.ExpectedGPUs = hardware.ExpectedGPUs("/sys")
		o.WaitForHardware = o.ExpectedGPUs > 0
	}
	o.Runner = units
	if f.noSystemd {
		o.Runner = processes
	}
	if f.release {
		return agent.Release(ctx, o, f.force)
	}
	if !f.noSystemd {
		o.Manager = systemd.Manager{}
		sockets, err := systemd.TakeSockets()
		if err != nil {
			return err
		}
		defer func() { _ = sockets.Close() }() // only those that no part asked for
		o.Ports = sockets
		if o.Listener, err = unixListener(sockets.Listeners(socketName)); err != nil {
			return err
		}
		if o.Metrics, err = metricsListener(sockets.Listeners(metricsName)); err != nil {
			return err
		}
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	o.Reload = reload
	return agent.Run(ctx, o)
}

// clientVerb makes this program the CUDA client of a verification. It is no
// command of the operator's: gpuslot verify is.
const clientVerb = "cuda-client"

// startClient runs this very program as a client, also where the file was
// replaced meanwhile or lies where the client's account cannot look.
func startClient(ctx context.Context, o cuda.Order) (verify.Client, error) {
	return cuda.Start(ctx, "/proc/self/exe", []string{clientVerb}, o)
}

// socketName is FileDescriptorName= in gpuslotd.socket.
const socketName = "agent"

func unixListener(ls []net.Listener) (*net.UnixListener, error) {
	if len(ls) == 0 {
		return nil, nil
	}
	l, ok := ls[0].(*net.UnixListener)
	if !ok || len(ls) > 1 {
		return nil, errors.New("systemd handed over something else than one unix socket: " +
			"compare gpuslotd.socket with the packaged one")
	}
	return l, nil
}

// metricsName is FileDescriptorName= in a site's own socket unit for scrapes.
const metricsName = "metrics"

func metricsListener(ls []net.Listener) (net.Listener, error) {
	switch len(ls) {
	case 0:
		return nil, nil
	case 1:
		if _, is := ls[0].(*net.TCPListener); !is {
			return nil, errors.New("systemd handed over a socket named metrics that is not of TCP: " +
				"write an address and a port after ListenStream= in that unit")
		}
		return ls[0], nil
	}
	return nil, errors.New("systemd handed over several sockets named metrics: write one ListenStream= into that unit")
}

// units runs control daemons as gpuslot-mps@<uuid>.service, whose pipe
// directories are where the unit file says.
func units(p config.Paths) (mps.Runner, error) {
	if !systemd.Booted() {
		return nil, errors.New("systemd does not run this machine: start gpuslotd with --no-systemd")
	}
	if fixed := config.Default().Paths.Run; p.Run != fixed {
		return nil, fmt.Errorf("paths.run = %q, but gpuslot-mps@.service keeps its pipe directories below %s: "+
			"leave paths.run out, or start gpuslotd with --no-systemd", p.Run, fixed)
	}
	return systemd.MPSUnits{}, nil
}

func processes(p config.Paths) (mps.Runner, error) {
	return mps.Processes{
		Root:    p.PipeRoot(),
		Program: p.ControlDaemon,
		Logs:    filepath.Join(p.State, "log"),
		FlagsOf: func(u gpu.UUID) []string { return daemons.Flags(p, u) },
	}, nil
}

// logger writes to the journal's pipe, which adds the time itself.
func logger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		return nil, fmt.Errorf("--log-level %q is none of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	if os.Getenv("JOURNAL_STREAM") != "" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

func build() metrics.Build {
	b := metrics.Build{Version: version, GoVersion: runtime.Version(), Revision: "unknown"}
	if commit != "" {
		b.Revision = commit
		return b
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}
