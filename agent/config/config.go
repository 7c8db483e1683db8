// Package config owns gpuslot.toml: the one file in which a site says how its
// GPUs are shared. It turns the file into a checked Config, or into errors
// that name file, line, key, value and what would be right, all at once. It
// decides nothing about a particular node: agent/plan does. Start at Load.
package config

import (
	"math"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Config is one gpuslot.toml, complete with defaults and checked. The zero
// value is not valid; use Default, Parse or Load.
type Config struct {
	RequestVRAM RequestVRAM
	CPUOnly     CPUOnly
	Elastic     Elastic
	Placement   Placement
	Budgets     Budgets
	Growth      Growth
	Usage       Usage
	Repartition Repartition
	Health      Health
	HTCondor    HTCondor
	Metrics     Metrics
	Paths       Paths

	// Warnings are complete sentences, each with file, line and key, about
	// what the file allows but an operator should know.
	Warnings []string

	// The sharing tables, laid over each other by For in this order:
	// [sharing], [model."…"], [host."…"], [gpu."…"].
	sharing table
	models  map[string]table
	hosts   []hostTable // the more specific later
	gpus    map[gpu.UUID]table
}

// RequestVRAM is what a job may say in request_vram.
type RequestVRAM struct {
	// Minimum is the smallest budget; smaller requests are raised to it at the
	// access point. A CUDA context alone takes some hundred MiB.
	Minimum gpu.MiB
	// Quantum is the step of budgets; pools and shares are multiples of it.
	Quantum gpu.MiB
	// WithoutRequest says what a GPU job without request_vram gets; empty
	// means whole where the node has whole GPUs, else refuse: START does not match
	// such a job, which waits for other nodes of the pool.
	WithoutRequest WithoutRequest
}

// WithoutRequest is the treatment of a GPU job that has no request_vram.
type WithoutRequest string

// The treatments. "share" is a default that the access point writes into the job;
// a job of another access point gets it from the agent, and HTCondor does not know
// of that VRAM. With "hold" the hook puts the job on hold with the line to add.
const (
	WithoutRequestAuto   WithoutRequest = ""
	WithoutRequestWhole  WithoutRequest = "whole"
	WithoutRequestShare  WithoutRequest = "share"
	WithoutRequestRefuse WithoutRequest = "refuse"
	WithoutRequestHold   WithoutRequest = "hold"
)

// CPUOnly is the part of the node kept for jobs without GPUs. Each value is an
// absolute amount or, if Percent is not zero, a share of the node rounded down.
type CPUOnly struct {
	CPUs   Amount
	Memory Amount // MiB
}

// Amount is an absolute number or a percentage ("10%").
type Amount struct {
	N       int64
	Percent float64
}

// rounding keeps 14.7 % of 1000 at 147 although the product is a hair below.
const rounding = 1e-6

// Of is the amount as part of total, rounded down; it may be above total if
// the amount is absolute.
func (a Amount) Of(total int64) int64 {
	if a.Percent != 0 {
		return int64(math.Floor(float64(total)*a.Percent/100 + rounding))
	}
	return a.N
}

// Budgets says what becomes of a job that uses more VRAM than its budget, all
// its processes together.
type Budgets struct {
	// Enforce is what happens; Grace is for how long the job may be over.
	Enforce Enforce
	Grace   time.Duration
}

// Limit is how much a job of this budget may use: 5 % more, or 256 MiB, if that is more.
func (b Budgets) Limit(budget gpu.MiB) gpu.MiB {
	return budget + max(256, budget/20)
}

// GrowthFactor multiplies a request at each retry, up to the largest budget of the pool.
const GrowthFactor = 2.0

// Growth says how a job that meets the limit of its VRAM is tried again with a
// larger request.
type Growth struct {
	// Retries is how often; 0 for never.
	Retries int
	// ExitCodes are those by which the site's programs say that they met it.
	ExitCodes []int
	// EarlyPercent of its budget in a sample stops a job that can grow; 0 for never.
	EarlyPercent int
}

// Enforce names what becomes of a job that breaks a rule.
type Enforce string

// What becomes of it: it is only counted and reported; HTCondor holds it with
// the reason; its processes that break the rule are killed.
const (
	EnforceReport Enforce = "report"
	EnforceHold   Enforce = "hold"
	EnforceKill   Enforce = "kill"
)

// Usage is the sampling of what jobs use.
type Usage struct {
	// Interval is the time between two samples.
	Interval time.Duration
	// DCGM is the address of the site's own dcgm-exporter on this machine;
	// empty if there is none.
	DCGM string
	// DCGMJobMapping is the directory that the site's dcgm-exporter reads with
	// --hpc-job-mapping-dir; empty for none.
	DCGMJobMapping string
}

// Repartition bounds how MIG layouts follow the work that waits.
type Repartition struct {
	// Dwell is how long an instance exists at least. It also bounds the changes of one GPU in an hour.
	Dwell time.Duration
	// ReserveAfter is how long work waits before instances are kept free for it,
	// ReserveFor how long they are, while no job on them ends.
	ReserveAfter, ReserveFor time.Duration
}

// Interval is the time between two looks at what waits in the pool: ten in the life of a device, and one a
// minute at least, because access points count once a minute.
func (r Repartition) Interval() time.Duration { return min(time.Minute, max(time.Second, r.Dwell/10)) }

// Rules are those of the policy.
func (r Repartition) Rules(how mig.Repartition) mig.Rules {
	rules := mig.DefaultRules()
	rules.Repartition, rules.Dwell, rules.PerHour = how, r.Dwell, max(1, int(time.Hour/max(r.Dwell, time.Minute)))
	rules.ReserveAfter, rules.ReserveFor = r.ReserveAfter, r.ReserveFor
	return rules
}

// ReplyDeadline is the longest wait for one reply of a control daemon.
const ReplyDeadline = 3 * time.Second

// Health bounds how long a health check of a control daemon's health is trusted, and
// says when a GPU opens.
type Health struct {
	// Interval is the pace of the reconcile loop.
	Interval time.Duration
	// Open is what a GPU must have shown before it takes jobs.
	Open Open
	// Unattached is what becomes of a job's process that computes on a shared
	// GPU for longer than AttachWithin and is no client of its control daemon.
	Unattached   Enforce
	AttachWithin time.Duration
}

// MaxAge is the oldest health check on which a job is admitted. The next one comes before that.
func (h Health) MaxAge() time.Duration { return max(time.Minute, 4*h.Interval) }

// Open is the condition on which a GPU takes jobs.
type Open string

// The conditions: the control daemon has proven its limits; a CUDA client has
// attached and met them as well, since the boot, the last fault and driver.
const (
	OpenAfterProof  Open = "after-proof"
	OpenAfterVerify Open = "after-verify"
)

// HTCondor is what the agent must know of the HTCondor installation.
type HTCondor struct {
	// Manage says whether the agent writes the execution point's
	// configuration (false: the site runs "gpuslot condor-config" itself).
	Manage bool
	// Supervise runs a job on a shared GPU below "gpuslot-condor supervise",
	// which lets its MPS clients leave before a signal ends them.
	Supervise bool
	// JobWrapper is the site's own job wrapper, started by ours; empty if none.
	JobWrapper string
	// Layout says how many startds there are, Execute below which directory the
	// jobs of a GPU's own startd run.
	Layout  Layout
	Execute string
	// Changes says what is done when the startds run an older plan.
	Changes Changes
}

// Layout names how the node's slots belong to startds.
type Layout string

// The layouts: all slots in HTCondor's own startd, or each GPU's in one of its own.
const (
	LayoutOneStartd    Layout = "one-startd"
	LayoutStartdPerGPU Layout = "startd-per-gpu"
)

// Changes names what is done when a startd runs an older plan. No job is ended
// for any of it.
type Changes string

// Nothing, but telling; a restart when no job runs there; no new jobs, and a
// restart when the last one has ended.
const (
	ChangesNever    Changes = "never"
	ChangesWhenIdle Changes = "when-idle"
	ChangesDrain    Changes = "drain"
)

// Metrics is the Prometheus listener.
type Metrics struct {
	// Listen is host:port; empty means no listener.
	Listen string
	// WebConfig is an exporter-toolkit web configuration file (TLS, basic
	// authentication); empty means plain HTTP.
	WebConfig string
	// JobLabels says what the metrics tell of jobs.
	JobLabels JobLabels
}

// JobLabels names what the metrics tell of jobs.
type JobLabels string

// What they tell: nothing; the job's id and virtual organisation; its user and
// accounting group as well.
const (
	JobLabelsNone       JobLabels = "none"
	JobLabelsJob        JobLabels = "job"
	JobLabelsJobAndUser JobLabels = "job-and-user"
)

// Paths are the places gpuslot writes to and the programs it runs.
type Paths struct {
	// Run holds pipe directories, the socket's directory, plan and generated
	// files; gone after a reboot.
	Run string
	// State holds what must survive a reboot: what to undo.
	State string
	// ControlDaemon is nvidia-cuda-mps-control: a name looked up in PATH, or a path.
	ControlDaemon string
	// Libexec holds gpuslot-condor as HTCondor calls it.
	Libexec string
}

// Mode is how a GPU is shared.
type Mode string

// The sharing modes. ModeChoose leaves the choice among the others to the plan,
// which knows the hardware; no planned GPU has it.
const (
	ModeMPS Mode = "mps"
	// ModeTimeSlice shares a GPU without MPS: the driver gives it to the processes by turns,
	// and limits the VRAM of each job's cgroup.
	ModeTimeSlice Mode = "time-slice"
	ModeWhole     Mode = "whole"
	ModeMIG       Mode = "mig"
	ModeChoose    Mode = "choose"
	// ModeElastic is mps or whole by turns; the plan says which.
	ModeElastic Mode = "elastic"
	// ModeObserve leaves the whole node as it is and looks on.
	ModeObserve Mode = "observe"
)

// Settings is what holds for one GPU after all tables were laid over each other.
type Settings struct {
	Mode Mode
	// Shares is the number of shares; 0 lets the plan choose.
	Shares int
	// ReservedVRAM is kept out of the pool beside the driver's and the MPS server's part.
	ReservedVRAM gpu.MiB
	// LargestRequest caps one job's budget; 0 means the pool.
	LargestRequest gpu.MiB
	// Whole is how many of the GPUs that get this number from the same table
	// are whole; WholeFrom names that table ("defaults" if none did). An
	// explicit mode in a [gpu."…"] table is not counted.
	Whole     int
	WholeFrom string
	Threads   Threads
	// MostThreads is the largest percentage that a job may ask for, if it is
	// above the policy's own value; 0 means that value.
	MostThreads float64
	// ComputeMode is the mode wanted while the GPU is shared; empty leaves it alone.
	ComputeMode gpu.ComputeMode
	Tenancy     Tenancy
	// TenancyFrom names the table that set Tenancy ("defaults" if none did).
	TenancyFrom string
	// Tenant is what the jobs on one GPU must have in common at one time.
	Tenant TenantKey
	// MIGLayouts are the layouts wanted with ModeMIG, the preferred one first, as
	// mig.ParseWant reads them; none leaves the instances as they are.
	MIGLayouts []string
	// MIGMPS shares each MIG device among several jobs through a control daemon
	// of its own.
	MIGMPS bool
	// Repartition is how far layouts follow the work that waits, with ModeMIG.
	Repartition mig.Repartition
	// Isolation is a wish for ModeChoose: the hardware shall keep jobs apart.
	Isolation bool
	// ModeFrom names the table that set Mode ("defaults" if none did).
	ModeFrom string
}

// Threads is the policy for CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
type Threads struct {
	Policy ThreadsPolicy
	// Percent is used by ThreadsFixed: above 0, at most 100.
	Percent float64
}

// ThreadsPolicy names a thread percentage policy.
type ThreadsPolicy string

// The policies: no cap, 100/shares, in proportion to the budget, one number.
const (
	ThreadsUncapped ThreadsPolicy = "uncapped"
	ThreadsEqual    ThreadsPolicy = "equal"
	ThreadsByVRAM   ThreadsPolicy = "by-vram"
	ThreadsFixed    ThreadsPolicy = "fixed"
	// ThreadsPartitioned gives each share a static SM partition: SMs that are
	// its own (driver R590 or newer, Ampere or newer).
	ThreadsPartitioned ThreadsPolicy = "partitioned"
)

// Tenancy says whose jobs may share a GPU at one time; MPS without multi-user
// mode serves one account at a time and lets the others hang in cuInit.
type Tenancy struct {
	Policy TenancyPolicy
	// User is the account of TenancyCommon.
	User string
}

// TenancyPolicy names a tenancy.
type TenancyPolicy string

// The tenancies: the account that holds the GPU now; one account for all jobs;
// control daemons whose servers serve several accounts at once.
const (
	TenancyOneAtATime TenancyPolicy = "one-at-a-time"
	TenancyCommon     TenancyPolicy = "common"
	TenancyMultiUser  TenancyPolicy = "multi-user"
)

// TenantKey names what tells one tenant of a GPU from another.
type TenantKey string

// The keys: the account, the job's accounting group, and the virtual
// organisation of its proxy. A job without the latter two is its owner's.
const (
	TenantAccount TenantKey = "account"
	TenantGroup   TenantKey = "accounting-group"
	TenantVO      TenantKey = "vo"
)
