package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Unready says why the agent does not know its GPUs yet; empty after the first round.
func (s Service) Unready() string {
	switch n := s.Node(); {
	case n.Closed != "":
		return n.Closed
	case !n.Ready:
		return "gpuslotd makes its first round"
	}
	return ""
}

// Unwell names the first GPU that is not well; empty if all are.
func (s Service) Unwell() string {
	now := time.Now()
	for _, g := range toVerify(s.Node().Plan) {
		if why := s.Options.Unwell(g, now); why != "" {
			return fmt.Sprintf("GPU %d: %s", g.Index, why)
		}
	}
	return ""
}

// toVerify are the GPUs and MIG devices with MPS that are there.
func toVerify(p *plan.Plan) []*plan.GPU {
	var out []*plan.GPU
	for i := range p.GPUs {
		if g := &p.GPUs[i]; g.MPS() && (g.Place == "" || g.Device != "") {
			out = append(out, g)
		}
	}
	return out
}

// Verify tries one GPU after the other, and returns closures for those that do not keep their
// limits.
func (s Service) Verify(ctx context.Context) ([]closures.Closure, error) {
	if !s.Verifier.Able() {
		return nil, nil
	}
	var failed []closures.Closure
	for _, g := range toVerify(s.Node().Plan) {
		found := s.verifyOne(ctx, g)
		if ctx.Err() != nil {
			return nil, errors.New("gpuslotd is ending")
		}
		if found != "" {
			failed = append(failed, closures.Closure{
				GPU: g.Physical(), Owner: closures.OwnerNode, Since: time.Now(),
				Reason: fmt.Sprintf("%s: mend it, then: gpuslot verify %s; gpuslot gpu open %s --override", found, g.UUID, g.UUID),
			})
		}
	}
	return failed, nil
}

// verifyOne verifies one GPU of a node that resumes; empty if it keeps its limits.
func (s Service) verifyOne(ctx context.Context, g *plan.GPU) (found string) {
	if why := s.Options.Unwell(g, time.Now()); why != "" {
		return "it was not well when the node resumed (" + foreign.Clip(why) + ")"
	}
	switch r := s.Verifier.GPU(ctx, g.UUID); {
	case r.Skipped != "":
		return "it could not be verified when the node resumed (" + foreign.Clip(r.Skipped) + ")"
	case !r.OK:
		return "its verification after the node resumed failed (" + foreign.Clip(r.Text) + ")"
	}
	return ""
}
