package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/here"
)

// hereTimeout is how long a user waits.
const hereTimeout = 5 * time.Second

// tellHere says to a job what it holds: "gpuslot here" for containers, which
// this static program can be bound into.
func (p program) tellHere(args []string) int {
	o, err := p.parse("here", args, hereTimeout)
	if err != nil || len(o.args) > 0 {
		return usage
	}
	reply, err := o.call(api.Request{Op: api.OpHere})
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
		return 1
	case reply.NoJob:
		fmt.Fprintf(p.stderr, "gpuslot-condor: %s\n", here.NoJob)
		return here.ExitNoJob
	case reply.Here == nil:
		fmt.Fprintln(p.stderr, "gpuslot-condor: gpuslotd answered without what was asked for; "+
			"install the same version of both")
		return 1
	}
	if o.json {
		text, err := json.MarshalIndent(reply.Here, "", "  ")
		if err != nil {
			return 1
		}
		fmt.Fprintf(p.stdout, "%s\n", text)
	} else {
		here.Text(p.stdout, *reply.Here)
	}
	if len(reply.Here.GPUs) == 0 {
		return here.ExitNoShare
	}
	return 0
}
