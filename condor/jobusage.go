package condor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// JobUsage is what a job's ad says of its use of GPUs, as HTCondor keeps it at the access
// point. What the ad does not have is nil or empty.
type JobUsage struct {
	ID    string `json:"job"`
	Owner string `json:"owner,omitempty"`
	// State is HTCondor's word for JobStatus: idle, running, completed, …
	State string `json:"state,omitempty"`
	// GPUs is request_gpus. RequestedMiB is request_vram, BudgetMiB what the slot had.
	GPUs         *int64 `json:"request_gpus,omitempty"`
	RequestedMiB *int64 `json:"request_vram_mib,omitempty"`
	BudgetMiB    *int64 `json:"vram_budget_mib,omitempty"`
	PeakMiB      *int64 `json:"vram_peak_mib,omitempty"`
	// GPUSeconds are those of whole GPUs, with their bounds; Joules is the job's energy.
	GPUSeconds    *float64 `json:"gpu_seconds,omitempty"`
	GPUSecondsMin *float64 `json:"gpu_seconds_min,omitempty"`
	GPUSecondsMax *float64 `json:"gpu_seconds_max,omitempty"`
	Joules        *float64 `json:"energy_joules,omitempty"`
	// WallSeconds is how long the job ran, over all its starts; Starts is their number.
	WallSeconds *float64 `json:"run_seconds,omitempty"`
	Starts      *int64   `json:"starts,omitempty"`
	HoldReason  string   `json:"hold_reason,omitempty"`
	// NextMiB is the request_vram to write next time.
	NextMiB *int64 `json:"next_request_vram_mib,omitempty"`
}

var usageAttributes = []string{
	"ClusterId", "ProcId", "Owner", "JobStatus", "RequestGPUs", "RequestVRAM", "VRAMProvisioned",
	"VRAMUsage", "GPUTimeUsage",
	"GPUTimeMinUsage", "GPUTimeMaxUsage", "GPUEnergyUsage", "RemoteWallClockTime", "NumShadowStarts", "HoldReason",
}

// historyTimeout bounds a search of the history, which may have gigabytes.
const historyTimeout = 2 * time.Minute

// JobUsages asks the access point on this machine for a job ("12.0") or all jobs of a
// cluster ("12"), in the history and in the queue. It returns them by their numbers, and none
// if there is no such job.
func JobUsages(ctx context.Context, id string) ([]JobUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	found := map[string]JobUsage{}
	attributes := []string{id, "-json", "-attributes", strings.Join(usageAttributes, ",")}
	for _, command := range [][]string{{"condor_history"}, {"condor_q", "-allusers"}} {
		out, err := output(ctx, nil, command[0], append(command[1:], attributes...)...)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return nil, fmt.Errorf("%s is not in PATH: run this on the access point where the job was submitted", command[0])
		case err != nil && len(found) == 0: // else the history has the job; the schedd may be down
			return nil, err
		}
		ads, err := classad.ParseJSON(out)
		if err != nil {
			return nil, fmt.Errorf("read what %s prints: %w", command[0], err)
		}
		for _, ad := range ads {
			u := jobUsage(ad)
			found[u.ID] = u
		}
	}
	jobs := make([]JobUsage, 0, len(found))
	for _, u := range found {
		jobs = append(jobs, u)
	}
	slices.SortFunc(jobs, func(a, b JobUsage) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID)) // one cluster: 12.9 before 12.10
	})
	return jobs, nil
}

func jobUsage(ad classad.Ad) JobUsage {
	u := JobUsage{
		GPUs: number(ad, "RequestGPUs"), BudgetMiB: number(ad, "VRAMProvisioned"), PeakMiB: number(ad, "VRAMUsage"),
		GPUSeconds: measured(ad, "GPUTimeUsage"), GPUSecondsMin: measured(ad, "GPUTimeMinUsage"),
		GPUSecondsMax: measured(ad, "GPUTimeMaxUsage"), Joules: measured(ad, "GPUEnergyUsage"),
		WallSeconds: measured(ad, "RemoteWallClockTime"), Starts: number(ad, "NumShadowStarts"),
	}
	u.RequestedMiB = request(ad, "RequestVRAM", u.BudgetMiB)
	cluster, _ := ad.Int("ClusterId")
	proc, _ := ad.Int("ProcId")
	u.ID = strconv.FormatInt(cluster, 10) + "." + strconv.FormatInt(proc, 10)
	owner, _ := ad.String("Owner")
	hold, _ := ad.String("HoldReason")
	u.Owner, u.HoldReason = foreign.Word(owner), Sentence(hold)
	if status, ok := ad.Int("JobStatus"); ok && status > 0 && int(status) < len(jobStates) {
		u.State = jobStates[status]
	}
	if u.PeakMiB != nil && *u.PeakMiB > 0 && *u.PeakMiB < mostMiB {
		next := nextRequest(*u.PeakMiB)
		u.NextMiB = &next
	}
	return u
}

// jobStates are the values of JobStatus (HTCondor's manual, "Job ClassAd Attributes").
var jobStates = []string{"", "idle", "running", "removed", "completed", "held", "transferring output", "suspended"}

// mostMiB is more than any GPU has: users can edit their jobs' ads.
const mostMiB = 1 << 40

// nextRequest is the peak and a fifth more, in steps of 512 MiB.
func nextRequest(peak int64) int64 { return (peak*6/5 + 511) / 512 * 512 }

// measured is a number that is not negative; nil if the ad has none.
func measured(ad classad.Ad, name string) *float64 {
	v, ok := ad.Float(name)
	if !ok || v < 0 {
		return nil
	}
	return &v
}
