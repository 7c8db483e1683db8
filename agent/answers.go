package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/hook"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/observe"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/server"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/gpu"
)

// answers are the agent's answers to requests on its socket.
type answers struct {
	node      *node
	admission *admission.Preparer
	jobs      *jobs.Table
	ender     *ending.Ender
	elastic   *elastic.Group
	sampling  *sampling.Loop
	keeper    *daemons.Keeper
	verifier  *verify.Verifier
	quiescer  *closures.Quiescer
	operator  closures.Operator
	queue     *waiting.Queue
	history   *history.Writer
	metrics   *metrics.Metrics
	reader    *status.Reader
	log       *slog.Logger
	sweep     func()
	// wake wakes the loop.
	wake func()
	// public answers accounts other than root, monitor the startd's monitor.
	public  status.Public
	monitor status.Monitor
	// feedback is what became of the answers to the startd's programs.
	feedback server.Feedback
}

// server returns the server of the agent's socket. Hooks are the programs that HTCondor runs as
// the PREPARE_JOB hook.
func (a *answers) server(callers starter.Node, hooks ...string) *server.Server {
	owners := room.NewOwners(callers.Subuid)
	callers.Turns = room.NewTurns(owners)
	return server.New(server.Options{
		Callers: callers, Own: callers.Own, Handlers: a.handlers(callers, hooks), Feedback: &a.feedback, Log: a.log,
		Hook: func(c starter.Caller) bool { return callers.IsHook(c, hooks...) }, Owners: owners,
		Notes: server.Notes{
			Denied:   a.admission.Denied,
			Refused:  a.metrics.RequestRefused,
			Panicked: func(op api.Op) { a.metrics.ConversationPanicked(string(op)) },
		},
	})
}

// handlers answer the requests to the agent, each kind for those who may ask it.
func (a *answers) handlers(callers starter.Node, hooks []string) map[api.Op]server.Handler {
	return map[api.Op]server.Handler{
		api.OpPrepare: {From: server.Jobs, Answer: func(ctx context.Context, q server.Question) api.Reply {
			q.Caller.Hook = callers.IsHook(q.Caller, hooks...)
			return a.admission.Prepare(ctx, q.Caller, q.Job)
		}},
		api.OpHook: {From: server.Jobs, Answer: func(ctx context.Context, q server.Question) api.Reply {
			q.Caller.Hook = callers.IsHook(q.Caller, hooks...)
			return api.Reply{Hook: string(hook.Answer(*q.Hook, func(job *api.Job) (api.Reply, error) {
				return a.admission.Prepare(ctx, q.Caller, job), nil
			}))}
		}},
		api.OpStart: {From: server.Jobs, Answer: func(ctx context.Context, q server.Question) api.Reply {
			return a.admission.Start(ctx, q.Caller)
		}},
		api.OpEnd: {From: server.Jobs, Answer: func(ctx context.Context, q server.Question) api.Reply {
			ended, err := a.ender.End(ctx, q.Caller)
			return orError(api.Reply{Ended: ended}, err)
		}},
		api.OpHere: {From: server.Anybody, Answer: a.answerHere},
		api.OpMonitor: {From: server.Startds, Answer: func(context.Context, server.Question) api.Reply {
			return api.Reply{
				GPUs: a.acceptances(), Whole: a.elastic.Open(), Holds: a.jobs.Holds(), NoStart: a.node.view.Load().noStart(),
			}
		}},
		api.OpUsage: {From: server.Startds, Answer: func(context.Context, server.Question) api.Reply {
			a.sweep() // the slot's next job must not be told what the last one used
			return api.Reply{Uses: a.sampling.JobUses(time.Now())}
		}},
		api.OpStatus: {From: server.Anybody, Answer: func(_ context.Context, q server.Question) api.Reply {
			if !q.Operator {
				return api.Reply{Status: a.public.Status(q.UID)}
			}
			return api.Reply{Status: a.reader.Look(time.Now()).Status()}
		}},
		api.OpVerify: {Answer: func(ctx context.Context, q server.Question) api.Reply {
			found, err := a.verify(ctx, q.GPU)
			return orError(api.Reply{Verified: found}, err)
		}},
		api.OpRestart: {Answer: func(ctx context.Context, q server.Question) api.Reply {
			text, err := a.restart(ctx, q.GPU, q.Force)
			return orError(api.Reply{Done: text}, err)
		}},
		api.OpClose: {Answer: func(_ context.Context, q server.Question) api.Reply {
			return closing(a.closeGPU(q.Request))
		}},
		api.OpOpen: {Answer: func(_ context.Context, q server.Question) api.Reply {
			return closing(a.openGPU(q.Request))
		}},
		api.OpNode: {From: server.Anybody, Answer: a.answerNode},
	}
}

// orError is the reply, or the error alone.
func orError(r api.Reply, err error) api.Reply {
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return r
}

// answerHere answers a process of a job about its own slot.
func (a *answers) answerHere(_ context.Context, q server.Question) api.Reply {
	c, err := q.Identify()
	if errors.Is(err, starter.ErrNoSlot) {
		return api.Reply{NoJob: true}
	}
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return api.Reply{Here: a.reader.Here(c, time.Now())}
}

// acceptances answers the startd's monitor: the GPUs and MIG devices of the plan. With each
// answer one shared GPU may be closed to requests below the large one that waits.
func (a *answers) acceptances() []api.Acceptance {
	a.sweep() // a tenant must not outlive its last job here
	s := a.reader.Take(time.Now())
	var rooms []waiting.Room
	for _, g := range s.GPUs {
		if g.Shared() {
			rooms = append(rooms, waiting.Room{
				GPU: g.UUID, Open: g.Reason == "", Largest: g.LargestRequest, Free: g.Pool - g.Budgeted,
			})
		}
	}
	reserved, least, fresh := a.queue.Reserve(rooms, s.At)
	if fresh {
		a.log.Info("GPU closed to small requests", "gpu", reserved, "mib", least)
		a.history.Event(history.Event{Kind: history.EventPlan, GPU: reserved, By: history.ByAgent,
			Text: "It takes no request_vram below " + least.String() + ": such a job has waited for long."})
	}
	return a.monitor.Answer(s, reserved, least)
}

// verify verifies one GPU, or, without a name, each shared one in turn.
func (a *answers) verify(ctx context.Context, name string) ([]api.Verification, error) {
	v := a.node.view.Load()
	if !v.planned {
		return nil, errors.New(v.noPlan())
	}
	if v.plan.Observe {
		return nil, errors.New(`this node is observed (mode = "observe"): ` +
			`there is no control daemon to verify, and gpuslot starts nothing on its GPUs`)
	}
	var targets []gpu.UUID
	if name == "" {
		for _, g := range v.plan.GPUs {
			if g.MPS() {
				targets = append(targets, g.UUID)
			}
		}
	} else {
		g, err := closures.Single(&v.plan, name)
		if err != nil {
			return nil, err
		}
		targets = []gpu.UUID{g.UUID}
	}
	out := []api.Verification{}
	for _, u := range targets {
		out = append(out, a.verifier.GPU(ctx, u))
	}
	return out, nil
}

// restart restarts a GPU's control daemon for an operator.
func (a *answers) restart(ctx context.Context, name string, force bool) (string, error) {
	g, err := closures.Single(&a.node.view.Load().plan, name)
	if err != nil {
		return "", err
	}
	return a.keeper.Restart(ctx, g, force)
}

// closeGPU closes GPUs for an owner. Running jobs are left alone.
func (a *answers) closeGPU(req api.Request) (api.Closing, error) {
	v := a.node.view.Load()
	if err := observe.Refuse(&v.plan); err != nil {
		return api.Closing{}, err
	}
	defer a.wake()
	return a.operator.Close(&v.plan, req)
}

// openGPU opens GPUs for an owner.
func (a *answers) openGPU(req api.Request) (api.Closing, error) {
	v := a.node.view.Load()
	defer a.wake()
	return a.operator.Open(&v.plan, v.reasons, req)
}

// askNode carries out an operator's verb on the whole node.
func (a *answers) askNode(req api.Request) (api.NodeStatus, error) {
	if req.Verb != api.VerbStatus {
		if err := observe.Refuse(&a.node.view.Load().plan); err != nil {
			return api.NodeStatus{}, err
		}
	}
	return a.quiescer.Ask(req)
}

// answerNode shows everybody the state of the node, and operators the jobs and processes, too.
func (a *answers) answerNode(_ context.Context, q server.Question) api.Reply {
	if !q.Operator && q.Verb != api.VerbStatus {
		return api.Reply{Error: fmt.Sprintf("only root and the agent's account may %s the node: run gpuslot as root", q.Verb)}
	}
	if !q.Operator {
		n := a.quiescer.Phase()
		return api.Reply{Node: &n}
	}
	n, err := a.askNode(q.Request)
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return api.Reply{Node: &n}
}

// closing says what was done even if not all could be.
func closing(c api.Closing, err error) api.Reply {
	if err != nil {
		return api.Reply{Error: strings.Join(append(c.Text, err.Error()), "\n")}
	}
	return api.Reply{Closing: &c}
}
