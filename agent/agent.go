// Package agent is the daemon: the loop that reads, plans and applies, the
// admission of jobs, and the health of the control daemons. It owns the order
// of things; what a plan is belongs to agent/plan, what HTCondor reads to
// condor, how control daemons are spoken to, to mps. Real adapters come in
// from cmd/gpuslotd. Start at Run, then apply (the loop's one function) and
// Admit (a job's way in).
package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
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
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/server"
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
	// DeviceNodes closes those of other MIG devices to jobs; nil if nothing can.
	DeviceNodes isolation.Wall

	// For tests.
	cgroupRoot      string
	proc            string
	sys             string
	probe           func(ctx context.Context, program string) (mps.Capabilities, error)
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

// Agent is one running agent. Only its loop writes what has no lock.
type Agent struct {
	log        *slog.Logger
	configFile string
	version    string
	own        uint32
	hardware   *hardware.Reader
	startd     Startd
	settings   func(context.Context) (condor.Settings, error)
	pool       waiting.Pool
	manager    Manager
	daemons    ControlDaemons
	clients    Clients
	// keeper keeps the control daemons.
	keeper *daemons.Keeper
	// proc is /proc, with the starters of HTCondor's that count.
	proc starter.Node
	jobs *jobs.Table
	// elastic are the GPUs that serve shared and whole jobs by turns.
	elastic *elastic.Group
	// admission prepares jobs.
	admission *admission.Preparer
	// ender ends MPS clients.
	ender *ending.Ender
	// linking is held while holds are shown to supervisors.
	linking sync.Mutex
	// access is who may open which pipe directory; it changes after the job table did.
	access *access.List
	// pipes are the pipe directories themselves.
	pipes PipeAccess
	// sampling looks at what jobs do on the GPUs.
	sampling *sampling.Loop
	// troubles are the faults of the GPUs.
	troubles *faults.Watcher
	// closures are who closed which GPU; quiescer takes the node out of service.
	closures *closures.Table
	quiescer *closures.Quiescer
	metrics  *metrics.Metrics
	// port serves them.
	port     *metrics.Port
	verifier *verify.Verifier
	// reader takes snapshots of the node for readers.
	reader *status.Reader
	// public answers accounts other than root, monitor the startd's monitor.
	public  status.Public
	monitor status.Monitor
	// lastHour is what the node's page plots.
	lastHour page.History
	// partitions are static SM partitions.
	partitions *partitions.Partitions
	// prober finds out what control daemon, driver and kernel can do.
	prober *capability.Prober
	// limits are those of the driver on the VRAM of jobs' cgroups, below cgroupRoot.
	limits     *budget.Limits
	cgroupRoot string
	nodes      *isolation.Nodes
	// history writes events and the records of jobs.
	history *history.Writer
	// modes sets compute modes.
	modes *modes.Modes
	// layouts makes the MIG layouts.
	layouts *layouts.Layouts
	// queue is what waits in the pool.
	queue *waiting.Queue

	view atomic.Pointer[view]
	// lastBeat is when the loop last took a step, in nanoseconds since 1970.
	lastBeat atomic.Int64
	// startds asks HTCondor's startds.
	startds *startd.Startds
	// feedback is what became of the answers to the startd's programs.
	feedback server.Feedback
	// wake wakes the loop.
	wake chan struct{}

	// The loop's own. Recalled is the plan of the agent before this one.
	recalled plan.Plan
	// lostPlan is why that plan could not be read: see planBefore.
	lostPlan error
}

// nudge wakes whoever listens, unless they were woken already.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
