package closures

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Phase is how far a node is on its way out of service and back.
type Phase string

// The phases. On quiesced and reverted nodes nothing of gpuslot uses the driver.
const (
	Serving   Phase = ""
	Quiescing Phase = "quiescing"
	Quiesced  Phase = "quiesced"
	Reverting Phase = "reverting"
	Reverted  Phase = "reverted"
	Resuming  Phase = "resuming"
)

// Node is the state of the whole node that an operator asked for. It outlives agents and
// reboots.
type Node struct {
	Phase  Phase     `json:"phase"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Force: go on although it is not known whether jobs run.
	Force bool `json:"force,omitempty"`
	// Unverified: it opens without a verification.
	Unverified bool `json:"unverified,omitempty"`
}

// Quiet says that nothing may touch the driver.
func (n Node) Quiet() bool { return n.Phase == Quiesced || n.Phase == Reverted }

// Leaving says that the node waits for its last job.
func (n Node) Leaving() bool { return n.Phase == Quiescing || n.Phase == Reverting }

// verb is what a node that is leaving was asked for.
func (n Node) verb() string {
	if n.Phase == Reverting {
		return api.VerbRevert
	}
	return api.VerbQuiesce
}

// closure closes all GPUs of a node that does not serve.
func (n Node) closure() Closure {
	return Closure{Owner: OwnerNode, Since: n.Since, Reason: fmt.Sprintf("the node is %s: %s", n.Phase, n.Reason)}
}

// settles is how long jobs that were started before the GPUs closed may take to
// tell of themselves.
const settles = 3 * time.Second

// waitsFor says what a node that is leaving waits for; empty if for nothing. Slots have
// jobs that hold a GPU; unknown says why there may be more.
func (n Node) waitsFor(slots []string, unknown string, now time.Time) string {
	switch {
	case len(slots) > 0:
		return fmt.Sprintf("%d jobs run: %s", len(slots), strings.Join(slots, ", "))
	case unknown != "" && !n.Force:
		return fmt.Sprintf("%s: gpuslot node %s --force goes on without", unknown, n.verb())
	case now.Sub(n.Since) < settles:
		return "jobs that were just started may tell of themselves"
	}
	return ""
}

// asked returns the state after an operator's verb, and a sentence about what the verb does.
func (n Node) asked(req api.Request, now time.Time) (next Node, does string, err error) {
	next = n
	switch verb := req.Verb; {
	case verb == api.VerbQuiesce && n.Phase == Reverted:
		return n, "", errors.New("the node is reverted, and holds nothing of the driver")
	case verb == api.VerbQuiesce && n.Phase == Quiesced, verb == api.VerbRevert && n.Phase == Reverted:
		return n, fmt.Sprintf("the node is %s already, since %s", n.Phase, n.Since.Format(time.DateTime)), nil
	case verb == api.VerbQuiesce || verb == api.VerbRevert:
		reason, err := check(OwnerOperator, req.Reason)
		if err != nil {
			return n, "", err
		}
		next = Node{Phase: Quiescing, Reason: reason, Since: now, Force: req.Force}
		if verb == api.VerbRevert {
			next.Phase = Reverting
		}
		does = fmt.Sprintf("all GPUs are closed, the node is %s", next.Phase)
		if n.Leaving() {
			next.Since = n.Since
			does += fmt.Sprintf("; until now it was %s: %s", n.Phase, n.Reason)
		}
		return next, does, nil
	case verb == api.VerbResume && n.Leaving():
		return Node{}, "the node serves again: nothing had been stopped", nil
	case verb == api.VerbResume && n.Quiet():
		next.Phase, next.Since, next.Unverified = Resuming, now, req.Force
		return next, "gpuslotd starts again with the driver that is loaded", nil
	case verb == api.VerbResume && n.Phase == Resuming:
		next.Unverified = n.Unverified || req.Force
		return next, "the node is resuming already", nil
	case verb == api.VerbResume:
		return n, "the node serves", nil
	}
	return n, "", fmt.Errorf("a node has no verb %q", foreign.Clip(req.Verb))
}
