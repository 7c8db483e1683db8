package scenes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/node"
)

// verify plays gpuslot verify in the agent's sandbox: a CUDA client of its own
// as nobody, beside HTCondor.
func verify(ctx context.Context, st *Stage) error {
	if err := st.waitNoJobs(ctx); err != nil {
		return err
	}
	found, err := st.verifications(ctx)
	if err != nil {
		return err
	}
	for _, v := range found {
		st.Say("  leg %s: %s: %s", st.Leg, v.UUID, v.Text+v.Skipped)
	}
	st.Check(len(found) == len(st.Inventory.GPUs) && allHold(found), "gpuslot verify: on each of %d GPUs a client of nobody attached, was given VRAM below its limit and refused it above", len(found))
	if err := st.checkVerifiedShown(ctx); err != nil {
		return err
	}
	n, err := st.simNode(ctx)
	if err != nil {
		return err
	}
	left := 0
	for i := range st.Inventory.GPUs {
		left += len(n.on(i, kindClient))
	}
	st.Check(left == 0, "no client is left (%d)", left)
	return st.WaitAccept(ctx, len(st.Inventory.GPUs))
}

// waitNoJobs waits until the agent has no job in its books: a job that is
// completed in the queue still has its slot for a moment.
func (st *Stage) waitNoJobs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, "the last jobs to leave their slots", func() bool {
		s, err := st.Status(ctx)
		return err == nil && !slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return len(g.Jobs) > 0 })
	})
}

func (st *Stage) verifications(ctx context.Context) ([]api.Verification, error) {
	out, err := st.Run(ctx, "gpuslot", "verify", "--json")
	if err != nil {
		return nil, fmt.Errorf("gpuslot verify: %w: %s", err, out.Stdout)
	}
	var found []api.Verification
	return found, json.Unmarshal([]byte(out.Stdout), &found)
}

func allHold(found []api.Verification) bool {
	for _, v := range found {
		if !v.OK || v.Driver == "" || v.Account != "nobody" {
			return false
		}
	}
	return true
}

// checkVerifiedShown looks where a site would.
func (st *Stage) checkVerifiedShown(ctx context.Context) error {
	status, err := st.Status(ctx)
	if err != nil {
		return err
	}
	shown := 0
	for _, g := range status.GPUs {
		if g.Verified != nil && g.Verified.OK && g.Verified.Driver == status.Driver {
			shown++
		}
	}
	st.Check(shown == len(st.Inventory.GPUs), "gpuslot status shows %d GPUs as verified with driver %s", shown, status.Driver)
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	err = st.Wait(ctx, "the slots' GPUVerified", func() bool {
		out, err := st.Run(ctx, "condor_status", "-direct", "", "-constraint", `SlotType == "Partitionable" && GPUVerified =?= true`, "-af", "Name")
		return err == nil && len(strings.Fields(out.Stdout)) == len(st.Inventory.GPUs)
	})
	st.Check(err == nil, "the slots say GPUVerified = true")
	return err
}
