package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// typicalJob is what "gpuslot plan" counts with by default.
const typicalJob = "cpus=1,memory=4000,vram=4000"

// maxJobCPUs is above any machine's.
const maxJobCPUs = 1 << 16

// parseJob reads "cpus=1,memory=4000,vram=4000"; what is left out is as in
// typicalJob. All mistakes come at once.
func parseJob(s string) (plan.Request, error) {
	r := plan.Request{CPUs: 1, Memory: 4000, VRAM: 4000}
	var errs []error
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			errs = append(errs, fmt.Errorf("--job %s: %s is there twice", s, key))
		}
		seen[key] = true
		if err := setJob(&r, key, value); err != nil {
			errs = append(errs, fmt.Errorf("--job %s: %w", s, err))
		}
	}
	return r, errors.Join(errs...)
}

func setJob(r *plan.Request, key, value string) error {
	var err error
	switch key {
	case "cpus":
		r.CPUs, err = strconv.Atoi(value)
		if err != nil || r.CPUs < 1 || r.CPUs > maxJobCPUs {
			return fmt.Errorf("cpus is %q; write a whole number from 1 to %d", value, maxJobCPUs)
		}
	case "memory":
		r.Memory, err = parseAmount(key, value)
	case "vram":
		r.VRAM, err = parseAmount(key, value)
	default:
		err = fmt.Errorf("%q is none of cpus, memory, vram; write it like %s", key, typicalJob)
	}
	return err
}

func parseAmount(key, value string) (gpu.MiB, error) {
	m, err := gpu.ParseMiB(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	if m < 1 || m > gpu.MaxHostMemory {
		return 0, fmt.Errorf("%s is %s; write 1 to %d MiB", key, m, int64(gpu.MaxHostMemory))
	}
	return m, nil
}
