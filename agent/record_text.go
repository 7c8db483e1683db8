package agent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
)

// endSentence is how a job's end is told.
func endSentence(r record.Job) string {
	s := "The job ended after " + r.End.Sub(r.Begin).Round(time.Second).String()
	if r.PeakMiB != nil {
		s += fmt.Sprintf("; its VRAM peaked at %d MiB of %d MiB", *r.PeakMiB, cmp.Or(r.BudgetMiB, r.MemoryMiB))
	}
	if r.HoldReason != "" {
		s += "; gpuslot had it held: " + r.HoldReason
	}
	return s + "."
}
