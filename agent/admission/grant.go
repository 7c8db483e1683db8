package admission

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// grantShared is the job's slice, in NVIDIA's and our variables.
func (s State) grantShared(g *plan.GPU, budget gpu.MiB, threads float64) *api.Grant {
	enforced := Enforcement(g.LargestRequest, budget, s.Health)
	if g.NeedsLimits() {
		enforced = jobs.EnforcedByCgroup // before its program runs; see Preparer.Start
	}
	mib := strconv.FormatInt(int64(budget), 10)
	env := map[string]string{
		"CUDA_VISIBLE_DEVICES": string(g.UUID),
		"GPUSLOT_GPU":          string(g.UUID),
		"GPUSLOT_VRAM_MIB":     mib,
		"GPUSLOT_ENFORCED_BY":  enforced,
	}
	if g.MPS() {
		pipes := s.Pipes + "/" + string(g.UUID)
		env["CUDA_MPS_PIPE_DIRECTORY"] = pipes
		env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=" + mib + "M"
		env[condor.BindVariable] = pipes // as apptainer's --bind takes it
	}
	switch {
	case g.Partitioned():
		env[mps.PartitionVariable] = s.Partition // thread percentages are ignored beside it
	case g.MPS() && threads < 100:
		env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percentText(threads)
	}
	total := g.Memory
	if s.Health.CgroupLimits {
		total = budget // what CUDA shows of the GPU in the job's cgroup
	}
	return &api.Grant{Environment: env, EnforcedBy: enforced, Defaults: map[string]string{
		// Both frameworks take the whole card they see unless told otherwise.
		"TF_FORCE_GPU_ALLOW_GROWTH":      "true",
		"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction(budget, total),
	}}
}

// grantWhole is for a job alone on its GPUs, or on none: no MPS. Its GPUSLOT_VRAM_MIB is the
// memory of the GPU or MIG device; with several GPUs, of the smallest.
func (s State) grantWhole(gpus []gpu.UUID) *api.Grant {
	if len(gpus) == 0 {
		return &api.Grant{Environment: map[string]string{}, EnforcedBy: jobs.EnforcedByNone}
	}
	names := make([]string, len(gpus))
	var least gpu.MiB // of the GPUs whose memory is known
	for i, u := range gpus {
		names[i] = string(s.deviceOf(u))
		if g, ok := s.Plan.Find(u); ok && g.Memory > 0 {
			least = min(g.Memory, cmp.Or(least, g.Memory))
		}
	}
	all := strings.Join(names, ",")
	grant := &api.Grant{EnforcedBy: jobs.EnforcedByWhole, Environment: map[string]string{
		"CUDA_VISIBLE_DEVICES": all,
		"GPUSLOT_GPU":          all,
		"GPUSLOT_ENFORCED_BY":  jobs.EnforcedByWhole,
	}}
	if least > 0 {
		grant.Environment["GPUSLOT_VRAM_MIB"] = strconv.FormatInt(int64(least), 10)
	}
	if gpus[0].IsMIG() {
		grant.EnforcedBy = jobs.EnforcedByMIG
		grant.Environment["GPUSLOT_ENFORCED_BY"] = jobs.EnforcedByMIG
		grant.Environment["NVIDIA_VISIBLE_DEVICES"] = all // HTCondor leaves it to the hook
	}
	return grant
}

// deviceOf is the MIG device at a place of a layout; u itself otherwise.
func (s State) deviceOf(u gpu.UUID) gpu.UUID {
	if g, ok := s.Plan.Find(u); ok && g.Device != "" {
		return g.Device
	}
	return u
}

// Enforcement says what holds a job to its budget on a shared GPU, in the words of jobs.EnforcedBy…, where its
// cgroup has no limit.
// The daemon's limit does if it is not above the budget, the server was started under it, and a
// probe has shown that other accounts cannot change it (on driver 535 they can). Sampling holds
// where the GPU's processes are seen.
func Enforcement(limit, budget gpu.MiB, h Health) string {
	switch {
	case !h.ByDriver && h.PrivilegeChecks && budget >= limit && !h.Stale:
		return jobs.EnforcedByDaemon
	case h.Watched:
		return jobs.EnforcedByWatch
	}
	return jobs.EnforcedByNone
}

// fraction is limit over total, rounded down to two decimals but above zero.
func fraction(limit, total gpu.MiB) string {
	f := math.Floor(float64(limit)/float64(max(total, 1))*100+1e-9) / 100
	return strconv.FormatFloat(min(max(f, 0.01), 1), 'f', 2, 64)
}
