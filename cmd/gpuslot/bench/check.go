package bench

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// MaxCopies bounds the copies of one run: more than any driver serves clients.
const MaxCopies = 256

// Bounds beyond which a number is a mistake.
const (
	maxRuns    = 1 << 14
	maxRepeats = 1 << 10
	maxSeconds = 366 * 24 * 3600
	maxJoules  = maxSeconds * 1e5 // 100 kW
)

// Check reports everything that cannot have been measured, all at once.
func (r Result) Check() error {
	var c checker
	c.must(r.Schema == Schema, "its schema is %q, not %q", r.Schema, Schema)
	c.must(!r.Started.IsZero(), "it does not say when it was started")
	c.must(len(r.Command) > 0, "it has no command")
	c.add(r.Machine.check())
	c.must(len(r.Runs) <= maxRuns, "it has %d runs", len(r.Runs))
	seen := map[key]bool{}
	for i, run := range r.Runs {
		c.within(fmt.Sprintf("run %d", i+1), run.check)
		k := key{run.Mode, run.Copies, run.Profile, run.Repeat}
		c.must(!seen[k], "run %d repeats an earlier one", i+1)
		seen[k] = true
	}
	c.must(len(r.Served) <= maxServed, "it has %d points of requests", len(r.Served))
	for i, s := range r.Served {
		c.within(fmt.Sprintf("served %d", i+1), s.check)
	}
	for _, s := range r.Skipped {
		c.must(s.Mode.Known() && s.Copies >= 0 && s.Copies <= MaxCopies && strings.TrimSpace(s.Reason) != "",
			"it has a point not measured without a mode, with %d copies, or without a reason", s.Copies)
	}
	return c.join("bench result")
}

type key struct {
	mode    Mode
	copies  int
	profile string
	repeat  int
}

// check is the inventory's own.
func (m Machine) check() error {
	return gpu.Inventory{Schema: gpu.InventorySchema, Host: m.Host, Driver: m.Driver, CUDA: m.CUDA,
		GPUs: []gpu.GPU{m.GPU}}.Check()
}

func (r Run) check(c *checker) {
	c.must(r.Mode.Known(), "its mode is %q", r.Mode)
	c.must(r.Copies >= 1 && r.Copies <= MaxCopies, "it has %d copies", r.Copies)
	c.must(len(r.Jobs) == r.Copies, "it has %d jobs for %d copies", len(r.Jobs), r.Copies)
	c.must(r.Repeat >= 1 && r.Repeat <= maxRepeats, "its repeat is %d", r.Repeat)
	c.must((r.Mode == MIG) == (r.Profile != ""), "a MIG profile belongs to mode mig")
	if r.Profile != "" {
		_, err := gpu.ParseProfileName(r.Profile)
		c.add(err)
	}
	c.must((r.Mode == MPSCapped) == (r.ThreadPercentage != nil), "an active thread percentage belongs to mode mps-capped")
	c.number("active_thread_percentage", r.ThreadPercentage, 100)
	c.number("seconds", &r.Seconds, maxSeconds)
	c.must(r.Seconds > 0, "it took no time")
	c.number("energy_joules", r.Energy, maxJoules)
	c.must((r.Energy != nil) == (r.EnergyFrom == EnergyCounter || r.EnergyFrom == EnergyPower) &&
		(r.Energy != nil || r.EnergyFrom == ""),
		"energy and its source %q belong together", r.EnergyFrom)
	c.number("sm_activity", r.SMActivity, 1)
	c.number("dram_activity", r.DRAMActivity, 1)
	c.number("kernel_time", r.KernelTime, 1)
	c.memory("idle_vram_mib", r.IdleVRAM)
	c.memory("peak_vram_mib", r.PeakVRAM)
	for _, j := range r.Jobs {
		c.number("a job's seconds", &j.Seconds, maxSeconds)
		c.memory("a job's peak_vram_mib", j.PeakVRAM)
		// Clocks are read one after the other: a little more than the run's is no mistake.
		c.must(j.Seconds <= r.Seconds+1, "a job took %g s of %g s", j.Seconds, r.Seconds)
	}
}

// checker collects what is wrong.
type checker struct {
	where string
	errs  []error
}

func (c *checker) must(ok bool, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf(c.where+format, args...))
	}
}

func (c *checker) add(err error) {
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s%w", c.where, err))
	}
}

func (c *checker) within(where string, check func(*checker)) {
	c.where = where + ": "
	check(c)
	c.where = ""
}

// number: a value that is there lies between 0 and most, so it is no NaN.
func (c *checker) number(name string, v *float64, most float64) {
	c.must(v == nil || *v >= 0 && *v <= most && !math.IsInf(*v, 0), "%s is out of range", name)
}

func (c *checker) memory(name string, v *gpu.MiB) {
	c.must(v == nil || *v >= 0 && *v <= gpu.MaxMemory, "%s is out of range", name)
}

func (c *checker) join(what string) error {
	if len(c.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", what, errors.Join(c.errs...))
}
