package scenes

import (
	"context"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/site"
)

// TestOpenAfterVerify: a node whose GPUs open only when a CUDA client has met
// their limits. Leg: sim.
func TestOpenAfterVerify(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	st := stageOn(t, startSite(t, site.Options{Leg: site.Sim, Inventory: &inv, Config: "[health]\nopen = \"after-verify\"\n"}), inv)
	begin := time.Now()
	must(t, st.WaitAccept(ctx, len(inv.GPUs)))
	st.Say("leg %s: open %s after the start of HTCondor", st.Leg, time.Since(begin).Round(time.Second))
	must(t, st.checkVerifiedShown(ctx))
	st.checkReopens(ctx, t)
	st.checkKilledMidway(ctx, t)
	done(t, st)
}

// checkReopens: a control daemon that was started anew is verified anew.
func (st *Stage) checkReopens(ctx context.Context, t *testing.T) {
	t.Helper()
	before := st.verifiedAt(ctx, t)
	_, err := st.Run(ctx, "gpuslot", "gpu", "restart", "0")
	must(t, err)
	must(t, st.Wait(ctx, "GPU 0 to be verified again", func() bool {
		s, err := st.Status(ctx)
		return err == nil && s.GPUs[0].Accept && s.GPUs[0].Verified.OK && s.GPUs[0].Verified.At.After(before)
	}))
	st.Check(true, "a restarted control daemon is verified before its GPU opens again")
}

func (st *Stage) verifiedAt(ctx context.Context, t *testing.T) time.Time {
	t.Helper()
	s, err := st.Status(ctx)
	must(t, err)
	return s.GPUs[0].Verified.At
}

// checkKilledMidway: nothing of a verification outlives its agent.
func (st *Stage) checkKilledMidway(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := st.Run(ctx, "simgpu", "hang", "any", "cuInit")
	must(t, err)
	go func() { _, _ = st.Run(ctx, "gpuslot", "verify", "1") }()
	client := func() string {
		out, _ := st.Run(ctx, "pgrep", "-f", "^/proc/self/exe cuda-client") // 1 if there is none
		return out.Stdout
	}
	must(t, st.Wait(ctx, "a client that hangs", func() bool { return client() != "" }))
	_, err = st.Run(ctx, "systemctl", "kill", "-s", "KILL", "--kill-whom=main", "gpuslotd.service")
	must(t, err)
	must(t, st.Wait(ctx, "the client to be gone with its agent", func() bool { return client() == "" }))
	_, err = st.Run(ctx, "simgpu", "release", "any")
	must(t, err)
	must(t, st.WaitAccept(ctx, len(st.Inventory.GPUs)))
	// The new agent verifies, too, and books for it: a booking that is left stays.
	must(t, st.waitNoJobs(ctx))
	st.Check(true, "an agent killed in the middle of a verification leaves no client and no booking")
}
