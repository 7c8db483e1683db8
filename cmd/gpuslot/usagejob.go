package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
)

var jobID = regexp.MustCompile(`^[0-9]{1,10}(\.[0-9]{1,10})?$`)

// usageOfJob prints what one job, or all jobs of a cluster, used of the GPUs.
func usageOfJob(ctx context.Context, w io.Writer, id string, asJSON bool) error {
	if !jobID.MatchString(id) {
		return show.Usage(fmt.Errorf("%q is no job; write its number, such as 12 or 12.0", id))
	}
	jobs, err := condor.JobUsages(ctx, id)
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		return show.Hint(fmt.Errorf("neither the queue nor the history of this access point has job %s", id),
			"run it on the access point where the job was submitted")
	}
	if asJSON {
		return show.JSON(w, jobs)
	}
	var none []error
	for i, u := range jobs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		jobUsageText(w, u)
		if why := withoutUsage(u); why != "" {
			none = append(none, errors.New("job "+u.ID+" "+why))
		}
	}
	if len(none) == len(jobs) {
		return errors.Join(none...)
	}
	return nil
}

// withoutUsage says why a job's ad has no numbers; empty if it has some.
func withoutUsage(u condor.JobUsage) string {
	switch {
	case u.PeakMiB != nil || u.GPUSeconds != nil || u.GPUSecondsMax != nil || u.Joules != nil:
		return ""
	case u.GPUs == nil || *u.GPUs == 0:
		return "asked for no GPU"
	case u.Starts == nil || *u.Starts == 0:
		return "has not started yet"
	}
	return "has no usage in its ad: it ran for some seconds only, or on a node without gpuslot"
}

func jobUsageText(w io.Writer, u condor.JobUsage) {
	t := &show.Table{}
	t.Row("job", u.ID+" of "+show.OrDash(u.Owner)+", "+show.OrDash(u.State))
	if u.WallSeconds != nil {
		t.Row("ran for", duration(*u.WallSeconds))
	}
	asked := mibOr(u.RequestedMiB, "no request_vram")
	if u.BudgetMiB != nil && (u.RequestedMiB == nil || *u.BudgetMiB != *u.RequestedMiB) {
		asked += ", got " + mibOr(u.BudgetMiB, "")
	}
	t.Row("asked for", asked)
	t.Row("VRAM peak", mibOr(u.PeakMiB, "not measured")+ofBudget(u.PeakMiB, u.BudgetMiB))
	t.Row("GPU time", gpuTime(u))
	energy := "not measured"
	if u.Joules != nil {
		energy = fmt.Sprintf("%.0f J (%.2f Wh)", *u.Joules, *u.Joules/3600)
	}
	t.Row("energy", energy)
	if u.HoldReason != "" {
		t.Row("held", u.HoldReason)
	}
	if u.NextMiB != nil {
		t.Row("next time", fmt.Sprintf("ask for request_vram = %d", *u.NextMiB))
	}
	t.Print(w)
}

// gpuTime is in seconds of a whole GPU, with its bounds and its part of the run.
func gpuTime(u condor.JobUsage) string {
	bounds := ""
	if u.GPUSecondsMin != nil && u.GPUSecondsMax != nil {
		bounds = fmt.Sprintf("%.1f to %.1f s", *u.GPUSecondsMin, *u.GPUSecondsMax)
	}
	switch {
	case u.GPUSeconds == nil && bounds == "":
		return "not measured"
	case u.GPUSeconds == nil:
		return bounds
	}
	text := fmt.Sprintf("%.1f s", *u.GPUSeconds)
	if bounds != "" {
		text += " (" + bounds + ")"
	}
	if u.WallSeconds != nil && *u.WallSeconds > 0 && u.Starts != nil && *u.Starts == 1 {
		text += fmt.Sprintf(", %.0f %% of the run", *u.GPUSeconds / *u.WallSeconds * 100)
	}
	return text
}

func mibOr(v *int64, none string) string {
	if v == nil {
		return none
	}
	return strconv.FormatInt(*v, 10) + " MiB"
}

// ofBudget is v as a part of all, in brackets; empty if one is not known.
func ofBudget(v, all *int64) string {
	if v == nil || all == nil || *all <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f %% of what it got)", float64(*v)/float64(*all)*100)
}

func duration(seconds float64) string {
	return time.Duration(min(seconds, 1e9) * float64(time.Second)).Round(time.Second).String()
}
