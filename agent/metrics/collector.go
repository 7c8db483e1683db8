package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/mig"
)

// GPUs are told apart by UUID alone; everything else about them is in
// gpuslot_gpu_info. Families never change; a const block cannot hold them.
var (
	gpuInfo = desc("gpu_info", "A GPU of the plan in force; the value is 1.", "gpu", "index", "name",
		"pci_bus_id", "mode")
	gpuMemory    = desc("gpu_memory_bytes", "Total memory of the GPU.", "gpu")
	gpuAbsent    = desc("gpu_absent", "A configured GPU that the node does not have; the value is 1.", "gpu")
	gpuAccepting = desc("gpu_accepting", "Whether the shared GPU takes new jobs.", "gpu")
	gpuClosed    = desc("gpu_closed", "A closure of the GPU, which takes no new jobs, by its owner; the value is 1.",
		"gpu", "owner")
	gpuShares = desc("gpu_shares", "How many jobs may run on the shared GPU at once.", "gpu")
	gpuUsed   = desc("gpu_shares_used", "How many jobs the job table has on the shared GPU.", "gpu")
	gpuJobs   = desc("gpu_jobs", "Jobs on the shared GPU, "+
		"by the enforcement of their budgets (cgroup, daemon, watch, none).", "gpu", "wall")
	gpuPool     = desc("gpu_vram_pool_bytes", "VRAM of the shared GPU for budgets.", "gpu")
	gpuBudgeted = desc("gpu_vram_budgeted_bytes", "Sum of the budgets of the jobs on the shared GPU.", "gpu")
	gpuWatched  = desc("gpu_budget_watch_up",
		"Whether the budget watch has read the memory of the shared GPU's jobs lately; "+
			"absent where the agent enforces no budget.", "gpu")
	gpuVerified = desc("gpu_verified", "Whether a CUDA client met the promised limits on the shared GPU; "+
		"absent if none has run.", "gpu")
	gpuVerifiedT = desc("gpu_verified_timestamp_seconds", "When a CUDA client last ran to test that.", "gpu")

	daemonUp = desc("control_daemon_up",
		"Whether the last health check of the GPU's control daemon succeeded and that process still runs.", "gpu")
	daemonProof = desc("control_daemon_proof_timestamp_seconds",
		"When the last good health check of the GPU's control daemon was.", "gpu")
	daemonRestarts = desc("control_daemon_restarts_total",
		"Processes of the GPU's control daemon seen beyond the first since the agent started.", "gpu")

	mpsClients = desc("mps_clients", "Clients that the MPS servers of the GPU or MIG device have.", "gpu", "mig")
	mpsThreads = desc("mps_default_thread_ratio",
		"The control daemon's default active thread percentage as it reads back, 0 to 1.", "gpu", "mig")

	mpsCapability = desc("mps_capability", "Whether the installed control daemon, "+
		"driver and kernel have a capability, found by a test.", "capability")

	configOK = desc("config_last_reload_successful",
		"Whether the last reading of the configuration led to a plan in force.")
	configTime = desc("config_last_reload_timestamp_seconds", "When the configuration was last read, successfully or not.")

	applyRounds   = desc("apply_rounds_total", "Rounds of the loop that compares the node with the plan.")
	applyOK       = desc("apply_last_successful", "Whether the node was as planned after the last round.")
	applyDuration = desc("apply_last_duration_seconds", "How long the last round took.")
	planTime      = desc("plan_applied_timestamp_seconds", "When the plan in force was first applied.")
	migWaiting    = desc("repartition_waiting_jobs",
		"Idle jobs of the pool, by the smallest MIG profile that serves them on the GPUs with this setting of repartition.",
		"profile", "setting")
	migUnserved = desc("repartition_unserved_jobs",
		"Idle jobs of the pool for whose VRAM there is a MIG profile, "+
			"but none whose slot has their CPUs and memory.", "setting")
	migTold = desc("repartition_demand_timestamp_seconds",
		"When an access point last reported what its jobs wait for.", "setting")
	migProposed = desc("repartition_proposed", "Whether repartition = suggest proposes a change.", "setting")
	migReserved = desc("repartition_reserved_devices",
		"MIG devices kept free of new jobs for one that will be made in their place.", "setting")

	driverInfo = desc("driver_info", "The driver that the plan was made for, and its CUDA version; the value is 1.",
		"driver", "cuda")
	migMatches = desc("mig_layout_matches_config", "Whether the GPU has the wanted MIG layout.", "gpu")
	fedOK      = desc("condor_feedback_success",
		"Whether the startd's programs took the agent's answer last time.")
	fedTime = desc("condor_feedback_timestamp_seconds",
		"When the startd's programs last took the agent's answer; of two, the older time.")

	startdAsks = desc("startd_asks", "Whether the startd asked within the last minute which GPUs take jobs; "+
		"without that none does.")
	olderLayout = desc("startd_older_layout",
		"Whether the startd runs with another layout than the plan's and must be restarted.")
)

// collect turns a snapshot, without the use of GPUs and slots, into series.
func collect(s *status.Snapshot, to *sink) {
	if !s.ConfigRead.IsZero() {
		to.gauge(configOK, number(s.ConfigOK))
		to.gauge(configTime, seconds(s.ConfigRead))
	}
	to.counter(applyRounds, float64(s.Rounds))
	if s.Rounds > 0 {
		to.gauge(applyOK, number(s.RoundOK))
		to.gauge(applyDuration, s.RoundTook.Seconds())
	}
	if s.Planned {
		to.gauge(planTime, seconds(s.Applied))
	}
	if s.Plan.Driver != "" {
		to.gauge(driverInfo, 1, s.Plan.Driver, s.Plan.CUDA)
	}
	// The startd's programs went with the configuration of a node that was reverted.
	if s.FeedbackAsked && s.Phase.Phase != closures.Reverted {
		to.gauge(fedOK, number(s.FeedbackOK))
		if !s.FeedbackAt.IsZero() {
			to.gauge(fedTime, seconds(s.FeedbackAt))
		}
	}
	for _, u := range slices.Sorted(maps.Keys(s.LaidOut)) {
		to.gauge(migMatches, number(s.LaidOut[u]), string(u))
	}
	if s.SilentKnown {
		to.gauge(startdAsks, number(s.Silent == 0))
	}
	if s.Startds.Err == nil && !s.Startds.At.IsZero() {
		to.gauge(olderLayout, number(s.Startds.Older()))
	}
	can := s.Can.Known()
	for _, name := range slices.Sorted(maps.Keys(can)) {
		to.gauge(mpsCapability, number(can[name]), name)
	}
	for _, u := range s.Plan.Absent {
		to.gauge(gpuAbsent, 1, string(u))
	}
	for i := range s.GPUs {
		collectPlanned(s, &s.GPUs[i], to)
	}
	for _, f := range faultsOf(s.Plan.GPUs, s.Faults) {
		to.counter(gpuFaults, float64(f.Count), string(f.GPU), f.Reason, string(f.Class))
	}
	for i := range s.Repartition {
		collectRepartition(&s.Repartition[i], to)
	}
}

func collectRepartition(r *api.StatusRepartition, to *sink) {
	if !r.Told.IsZero() {
		to.gauge(migTold, seconds(r.Told), r.Setting)
	}
	waiting := slices.Clone(r.Demand)
	slices.SortFunc(waiting, func(a, b api.StatusDemand) int { return strings.Compare(a.Profile, b.Profile) })
	for _, d := range waiting {
		to.gauge(migWaiting, float64(d.Jobs), d.Profile, r.Setting)
	}
	if !r.Told.IsZero() {
		unserved := 0
		for _, u := range r.Unserved {
			unserved += u.Jobs
		}
		to.gauge(migUnserved, float64(unserved), r.Setting)
	}
	to.gauge(migProposed, number(r.Act == string(mig.Propose)), r.Setting)
	to.gauge(migReserved, float64(len(r.Reserved)), r.Setting)
}

func collectPlanned(s *status.Snapshot, g *status.GPU, to *sink) {
	u := string(g.UUID)
	to.gauge(gpuInfo, 1, u, strconv.Itoa(g.Index), g.Model(), string(g.PCI), string(g.Mode))
	to.gauge(gpuMemory, float64(g.Memory.Bytes()), u)
	for _, owner := range g.Closures.Owners() {
		to.gauge(gpuClosed, 1, u, owner)
	}
	if !g.Shared() {
		return
	}
	to.gauge(gpuAccepting, number(s.Accepts(g)), u)
	to.gauge(gpuShares, float64(g.Shares), u)
	to.gauge(gpuUsed, float64(len(g.Jobs)), u)
	enforced := map[string]int{}
	for _, j := range g.Jobs {
		enforced[j.Enforced]++
	}
	for _, by := range slices.Sorted(maps.Keys(enforced)) {
		to.gauge(gpuJobs, float64(enforced[by]), u, by)
	}
	to.gauge(gpuPool, float64(g.Pool.Bytes()), u)
	to.gauge(gpuBudgeted, float64(g.Budgeted.Bytes()), u)
	up, wanted := s.DaemonUp(g)
	if wanted {
		to.gauge(daemonUp, number(up), u)
	}
	to.counter(daemonRestarts, float64(g.Daemon.Restarts), u)
	if device := sampling.Device(g.GPU); up {
		to.knownGauge(mpsClients, clientsOf(g.Daemon.Checked), string(device.GPU), string(device.MIG))
		to.knownGauge(mpsThreads, threadRatio(g.Daemon.Checked), string(device.GPU), string(device.MIG))
	}
	if g.Seen.Known {
		to.gauge(gpuWatched, number(g.Seen.Value), u)
	}
	if g.Verified != nil {
		to.gauge(gpuVerified, number(g.Verified.OK), u)
		to.gauge(gpuVerifiedT, seconds(g.Verified.At), u)
	}
	if at := g.Daemon.Checked.At; !at.IsZero() {
		to.gauge(daemonProof, seconds(at), u)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
