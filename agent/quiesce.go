package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// nodePhase is how far a node is on its way out of service and back.
type nodePhase string

// The phases. Quiesced and reverted nodes hold nothing of the driver.
const (
	nodeServes    nodePhase = ""
	nodeQuiescing nodePhase = "quiescing"
	nodeQuiesced  nodePhase = "quiesced"
	nodeReverting nodePhase = "reverting"
	nodeReverted  nodePhase = "reverted"
	nodeResuming  nodePhase = "resuming"
)

// nodeState is what an operator wants of the whole node; it outlives agents and
// reboots.
type nodeState struct {
	Phase  nodePhase `json:"phase"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Force: go on although it is not known whether jobs run.
	Force bool `json:"force,omitempty"`
	// Unverified: it opens without a CUDA client's proof.
	Unverified bool `json:"unverified,omitempty"`
}

// quiet says that nothing may touch the driver.
func (s nodeState) quiet() bool { return s.Phase == nodeQuiesced || s.Phase == nodeReverted }

// leaving says that the node waits for its last job.
func (s nodeState) leaving() bool { return s.Phase == nodeQuiescing || s.Phase == nodeReverting }

// verb is what a node that is leaving was asked for.
func (s nodeState) verb() string {
	if s.Phase == nodeReverting {
		return api.VerbRevert
	}
	return api.VerbQuiesce
}

// hold closes all GPUs of a node that does not serve.
func (s nodeState) hold() Hold {
	return Hold{Owner: OwnerNode, Since: s.Since, Reason: fmt.Sprintf("the node is %s: %s", s.Phase, s.Reason)}
}

// ErrAnew asks for a new process: a library of the driver that was loaded once
// stays in a process until it ends, so that a driver is let go, and another one
// taken up, only so.
var ErrAnew = errors.New("gpuslotd has to start anew")

// settles is how long jobs that were started before the GPUs closed may take to
// tell of themselves.
const settles = 3 * time.Second

// nodeFacts is what the next step rests on.
type nodeFacts struct {
	now time.Time
	// jobs are those that hold a GPU; unknown says why there may be more.
	jobs    []string
	unknown string
}

// waitsFor says what a node that is leaving waits for; empty if for nothing.
func (s nodeState) waitsFor(f nodeFacts) string {
	switch {
	case len(f.jobs) > 0:
		return fmt.Sprintf("%d jobs run: %s", len(f.jobs), strings.Join(f.jobs, ", "))
	case f.unknown != "" && !s.Force:
		return fmt.Sprintf("%s: gpuslot node %s --force goes on without", f.unknown, s.verb())
	case f.now.Sub(s.Since) < settles:
		return "jobs that were just started may tell of themselves"
	}
	return ""
}

// asked is the state after an operator's verb, and what it does in words.
func (s nodeState) asked(req api.Request, now time.Time) (next nodeState, does string, err error) {
	next = s
	switch verb := req.Verb; {
	case verb == api.VerbQuiesce && s.Phase == nodeReverted:
		return s, "", errors.New("the node is reverted, and holds nothing of the driver")
	case verb == api.VerbQuiesce && s.Phase == nodeQuiesced, verb == api.VerbRevert && s.Phase == nodeReverted:
		return s, fmt.Sprintf("the node is %s already, since %s", s.Phase, s.Since.Format(time.DateTime)), nil
	case verb == api.VerbQuiesce || verb == api.VerbRevert:
		reason, err := checkHold(OwnerOperator, req.Reason)
		if err != nil {
			return s, "", err
		}
		next = nodeState{Phase: nodeQuiescing, Reason: reason, Since: now, Force: req.Force}
		if verb == api.VerbRevert {
			next.Phase = nodeReverting
		}
		does = fmt.Sprintf("all GPUs are closed, the node is %s", next.Phase)
		if s.leaving() {
			next.Since = s.Since
			does += fmt.Sprintf("; until now it was %s: %s", s.Phase, s.Reason)
		}
		return next, does, nil
	case verb == api.VerbResume && s.leaving():
		return nodeState{}, "the node serves again: nothing had been stopped", nil
	case verb == api.VerbResume && s.quiet():
		next.Phase, next.Since, next.Unverified = nodeResuming, now, req.Force
		return next, "gpuslotd starts anew with the driver that is loaded", nil
	case verb == api.VerbResume && s.Phase == nodeResuming:
		next.Unverified = s.Unverified || req.Force
		return next, "the node is resuming already", nil
	case verb == api.VerbResume:
		return s, "the node serves", nil
	}
	return s, "", fmt.Errorf("a node has no verb %q", foreign.Clip(req.Verb))
}

// bareSlots are the slots that jobs hold, in order, without a verification's.
func bareSlots(running []Running) []string {
	var out []string
	for _, r := range running {
		if r.Starter.Slot != verifySlot {
			out = append(out, fmt.Sprintf("%s (%s on %s)", r.Starter.Slot, r.tenant(), r.GPU))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
