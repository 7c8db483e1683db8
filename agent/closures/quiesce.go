package closures

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/store"
)

// Jobs are those of the node.
type Jobs interface {
	// Holding returns the slots whose jobs hold a GPU. Unknown says why there may be
	// more; empty if all are known.
	Holding() (slots []string, unknown string)
}

// Driver is what the agent has of NVIDIA's driver.
type Driver interface {
	// LetGo stops what keeps the driver in use: control daemons, limits of cgroups and
	// compute modes. With revert it removes HTCondor's generated files too.
	LetGo(ctx context.Context, revert bool) error
	// Holders returns the processes that have the driver's devices open. With an error there may be more.
	Holders() ([]api.NodeHolder, error)
	// Version is that of the plan in force.
	Version() string
}

// GPUs are those that jobs share.
type GPUs interface {
	// Unready says why the agent does not know its GPUs yet; empty if it does.
	Unready() string
	// Unwell says which GPU cannot run jobs, and why; empty if all can.
	Unwell() string
	// Verify tries each with a CUDA client, if there is one, and returns closures for
	// those that do not keep their limits. The error is why it stopped before the last.
	Verify(ctx context.Context) ([]Closure, error)
}

// Quiescer takes a node out of service, so that its driver can be unloaded, and back.
type Quiescer struct {
	Table  *Table
	Jobs   Jobs
	Driver Driver
	GPUs   GPUs
	Events Events
	Log    *slog.Logger
	// Inventory is the file with what the node had when it was quiesced.
	Inventory string
	// Wake has the agent's loop go on.
	Wake func()
	// Quiet: the node was quiesced when this process started, which therefore touches
	// no GPU.
	Quiet bool
}

// Ask carries out an operator's verb on the whole node. What takes long the loop does.
func (q *Quiescer) Ask(req api.Request) (api.NodeStatus, error) {
	if req.Verb == api.VerbStatus {
		return q.Status(), nil
	}
	was := q.Table.Node()
	next, does, err := was.asked(req, time.Now())
	if err != nil {
		return api.NodeStatus{}, err
	}
	if next != was {
		if err := q.Table.SetNode(next); err != nil {
			return api.NodeStatus{}, err
		}
		q.Events.Event(history.Event{Kind: history.EventNode, By: history.ByOperator, Text: does})
		q.Log.Warn("node", "verb", req.Verb, "phase", next.Phase, "reason", next.Reason)
		q.Wake()
	}
	s := q.Status()
	s.Text = does
	return s, nil
}

// Phase returns the state of the node. It looks at no job and no process, so every account may ask for it as often as
// it likes. A gpuslotd that has used the driver has its library until it ends.
func (q *Quiescer) Phase() api.NodeStatus {
	n := q.Table.Node()
	s := api.NodeStatus{Phase: string(n.Phase), Reason: n.Reason, Since: n.Since}
	if n.Quiet() && !q.Quiet {
		s.Phase = string(map[Phase]Phase{Quiesced: Quiescing, Reverted: Reverting}[n.Phase])
		s.Waits = "gpuslotd starts again, without the driver's library"
	}
	return s
}

// Status returns the state of the node and what it waits for.
func (q *Quiescer) Status() api.NodeStatus {
	n, s := q.Table.Node(), q.Phase()
	switch {
	case n.Leaving():
		var unknown string
		s.Jobs, unknown = q.Jobs.Holding()
		s.Waits = n.waitsFor(s.Jobs, unknown, time.Now())
	case n.Quiet():
		var err error
		if s.Holders, err = q.Driver.Holders(); err != nil {
			s.Waits = fmt.Sprintf("it is known who has the driver's devices open: %v", err)
		}
	case n.Phase == Resuming:
		s.Waits = q.notBack(n)
	}
	return s
}

// Leave takes the next step of a node that is quiesced or reverted. Again says that this
// process has to end for it, and a new one to start.
func (q *Quiescer) Leave(ctx context.Context) (again bool) {
	n := q.Table.Node()
	switch {
	case n.Phase == Resuming && q.Quiet, n.Quiet() && !q.Quiet:
		return true
	case !n.Leaving():
		return false
	}
	if slots, unknown := q.Jobs.Holding(); n.waitsFor(slots, unknown, time.Now()) != "" {
		return false
	}
	err := q.Driver.LetGo(ctx, n.Phase == Reverting)
	if err == nil {
		n.Phase = map[Phase]Phase{Quiescing: Quiesced, Reverting: Reverted}[n.Phase]
		err = q.Table.SetNode(n)
	}
	if err != nil {
		q.Log.Error("the node cannot be quiesced; it is tried again", "err", err)
		return false
	}
	text := fmt.Sprintf("The node is %s: no control daemon runs, compute modes are as they were.", n.Phase)
	q.Events.Event(history.Event{Kind: history.EventNode, By: history.ByAgent, Text: text})
	q.Log.Warn("node", "phase", n.Phase, "reason", n.Reason)
	return true
}

const (
	// resumePace is how often a node that resumes is looked at.
	resumePace = time.Second
	// resumeWaits is how long a node that resumes waits for each of its GPUs. Then it
	// opens with those that are well.
	resumeWaits = 2 * time.Minute
)

// Resume opens a node that resumes once its control daemons are proven and its GPUs
// verified. It runs until the context ends, beside the agent's loop, since CUDA clients
// take their time.
func (q *Quiescer) Resume(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		why := q.TryResume(ctx)
		if why != logged && why != "" {
			q.Log.Info("the node resumes", "waits", why)
		}
		logged = why
		select {
		case <-ctx.Done():
		case <-time.After(resumePace):
		}
	}
}

// TryResume opens a node that resumes, or says what it waits for.
func (q *Quiescer) TryResume(ctx context.Context) (waits string) {
	n := q.Table.Node()
	if n.Phase != Resuming || q.Quiet {
		return ""
	}
	if why := q.notBack(n); why != "" {
		return why
	}
	return q.open(ctx, n)
}

// notBack says what a node that resumes waits for.
func (q *Quiescer) notBack(n Node) string {
	if why := q.GPUs.Unready(); why != "" {
		return why
	}
	if time.Since(n.Since) > resumeWaits {
		return ""
	}
	return q.GPUs.Unwell()
}

// open verifies what can be and opens the node. A GPU that does not keep its limits, or
// cannot be tried, stays closed.
func (q *Quiescer) open(ctx context.Context, n Node) (waits string) {
	var failed []Closure
	if !n.Unverified {
		var err error
		if failed, err = q.GPUs.Verify(ctx); err != nil {
			return err.Error()
		}
	}
	if err := q.Table.Serve(failed); err != nil {
		return err.Error()
	}
	if err := store.Remove(q.Inventory); err != nil {
		q.Log.Warn("a file stays behind", "err", err)
	}
	version := q.Driver.Version()
	text := fmt.Sprintf("The node serves again (driver %s); %d GPUs did not pass their verification.",
		version, len(failed))
	q.Events.Event(history.Event{Kind: history.EventNode, By: history.ByAgent, Text: text})
	q.Log.Warn("the node serves again", "driver", version, "failed", len(failed))
	q.Wake()
	return ""
}
