// Package agent is the daemon: it connects its parts, and repeats one round in which it reads,
// plans and applies. Each part is a package of its own, with its state and its lock; what a plan
// is belongs to agent/plan, HTCondor's files to condor, the words of control daemons to mps. The
// real adapters come from cmd/gpuslotd.
//
// Start at Run, then apply, which is one round. wire.go makes and connects the parts; node is
// what is known, view what one round found.
package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mps"
)

// Options are the agent's outside world.
type Options struct {
	// ConfigFile is gpuslot.toml; it is read at the start and at each reload.
	ConfigFile string
	// Build is what the program says of itself.
	Build metrics.Build
	Log   *slog.Logger
	// Hardware is NVML or a recorded file. WaitForHardware lets the start wait a
	// while until it can be read and shows GPUs, if ExpectedGPUs says that there
	// should be some.
	Hardware        hardware.Source
	WaitForHardware bool
	ExpectedGPUs    int
	// Runner starts control daemons below these paths: systemd units or processes.
	Runner func(config.Paths) (mps.Runner, error)
	// Usage reads what processes use of the GPUs; nil if nothing can.
	Usage usage.Source
	// Alarms tell what happens to the GPUs; nil if nobody can.
	Alarms faults.Alarms
	// CUDA starts a CUDA client that verifies a GPU; nil if there are no GPUs.
	CUDA func(context.Context, cuda.Order) (verify.Client, error)
	// KernelLog names the processes of XIDs; empty if it is not to be read.
	KernelLog string
	// Startd is HTCondor.
	Startd Startd
	// Settings reads HTCondor's settings; nil where they cannot be read.
	Settings func(context.Context) (condor.Settings, error)
	// Pool is the collector, which tells what waits; nil if there is none.
	Pool waiting.Pool
	// Manager is told of readiness and life; nil if nobody wants to know.
	Manager Manager
	// Listener is the socket that the service manager opened; nil lets the
	// agent listen on Socket itself.
	Listener *net.UnixListener
	Socket   string
	// Metrics is the service manager's socket for scrapes; nil leaves it to the
	// configuration.
	Metrics net.Listener
	// Ports keeps the metrics port while the agent restarts; nil without systemd.
	Ports metrics.Sockets
	// Reload asks for the configuration to be read again.
	Reload <-chan os.Signal

	// DriverMismatch asks a fresh process whether it could use the driver, and says
	// why not: its library was replaced under the loaded module. Nil asks nobody.
	DriverMismatch func(ctx context.Context) (why string, err error)

	// MemoryLimits says whether the driver's NVML can hold a cgroup's VRAM to a
	// limit, and whether that is known; nil if NVML is not in use.
	MemoryLimits func() (has, known bool)
	// MIG changes the layouts of MIG devices, with Hardware, Boot, Publish and
	// Reset; without hardware they stay as they are.
	MIG mig.Executor
	// Cgroups sets such limits; nil if nothing can.
	Cgroups budget.Driver
	// DeviceNodes closes them to jobs (of other MIG devices) and to users outside of jobs; nil if nothing can.
	DeviceNodes isolation.Kernel

	// For tests.
	cgroupRoot      string
	proc            string
	sys             string
	probe           func(ctx context.Context, program string, device gpu.UUID) (mps.Capabilities, error)
	daemons         ControlDaemons
	clients         Clients
	servers         Servers
	pipes           PipeAccess
	hardwareTimeout time.Duration
}

// PipeAccess opens and closes GPUs' pipe directories, and restricts the files in them;
// access.PipeDirectories is the real one.
type PipeAccess interface {
	access.Directories
	Restrict(u gpu.UUID) error
}

// Manager is the service manager that started the agent; systemd.Manager is
// the real one.
type Manager interface {
	// Ready says that the agent serves, for the first time or again after Reloading.
	Ready() error
	// Reloading says that the configuration is being read again.
	Reloading() error
	// Status is a line for people.
	Status(text string) error
	// Alive is the watchdog's ping.
	Alive() error
}

// Startd is HTCondor on this machine; startd.Programs is the real one.
type Startd interface {
	startd.HTCondor
	// Version is the installed one.
	Version(ctx context.Context) (condor.Version, error)
}

// ControlDaemons are the node's control daemons, by GPU; mps.Daemons is the real one.
type ControlDaemons interface {
	daemons.Daemons
	daemons.Checks
}

// Servers are the MPS servers of control daemons, and what they write; mps.Daemons is the
// real one.
type Servers interface {
	daemons.Servers
	daemons.Logs
}

// Clients are the MPS clients of the node's control daemons.
type Clients interface {
	// Servers lists a daemon's servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// EndClients lets processes leave: see mps.Daemon.EndClients.
	EndClients(ctx context.Context, u gpu.UUID, pids []int, rules mps.EndRules) (mps.EndStep, error)
	// SetServers gives running servers their limits: see mps.Daemon.SetServers.
	SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Checked, error)
}

// Agent is one running agent: its parts, and what connects them. Only its loop writes what has
// no lock.
type Agent struct {
	node
	log        *slog.Logger
	configFile string
	version    string
	own        uint32
	hardware   *hardware.Reader
	pool       waiting.Pool
	daemons    ControlDaemons
	clients    Clients
	// proc is /proc, with the starters of HTCondor's that count.
	proc starter.Node
	// pipes are the pipe directories, access who may open which; it changes after the job table did.
	pipes  PipeAccess
	access *access.List
	// cgroupRoot is where cgroups are mounted.
	cgroupRoot string
	// lastHour is what the node's page plots.
	lastHour page.History
	// wake wakes the loop.
	wake chan struct{}

	// The parts, each with a package of its own.
	admission  *admission.Preparer
	elastic    *elastic.Group
	ender      *ending.Ender
	history    *history.Writer
	jobs       *jobs.Table
	keeper     *daemons.Keeper
	layouts    *layouts.Layouts
	limits     *budget.Limits
	links      ending.Links
	metrics    *metrics.Metrics
	modes      *modes.Modes
	nodes      *isolation.Nodes
	partitions *partitions.Partitions
	port       *metrics.Port
	prober     *capability.Prober
	queue      *waiting.Queue
	quiescer   *closures.Quiescer
	reader     *status.Reader
	sampling   *sampling.Loop
	startds    *startd.Startds
	faults     *faults.Watcher
	verifier   *verify.Verifier

	// What connects parts: see connect.
	admitted admitted
	answers  answers
	heart    heart
	htcondor htcondor
	planner  planner
	reporter reporter
	settler  settler
	sweeper  sweeper
	verified verified
}

// nudge wakes whoever listens, unless they were woken already.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
