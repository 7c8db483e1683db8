package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/condor"
)

// demandTimeout is half of the period: condor_q reads a hundred thousand jobs in
// some seconds.
const demandTimeout = 30 * time.Second

// demand prints what waits here. If that cannot be told nothing is printed, and
// what was told last grows old and is no longer believed.
func (p program) demand(args []string) int {
	o, err := p.parse("demand", args, demandTimeout)
	if err != nil {
		return usage
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	d, err := condor.CountIdle(ctx, time.Now())
	if err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
		return 1
	}
	if _, err := p.stdout.Write(d.Ad()); err != nil {
		return 1
	}
	return 0
}
