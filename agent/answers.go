package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/server"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// newServer wires the server of the agent's socket. Hook is the program that HTCondor runs as
// the PREPARE_JOB hook.
func (a *Agent) newServer(callers starter.Node, hook string) *server.Server {
	return server.New(server.Options{
		Callers: callers, Own: callers.Own, Handlers: a.handlers(callers, hook), Feedback: &a.feedback, Log: a.log,
		Hook: func(c starter.Caller) bool { return callers.IsHook(c, hook) },
		Notes: server.Notes{
			Denied:   a.admission.Denied,
			Panicked: func(op api.Op) { a.metrics.ConversationPanicked(string(op)) },
		},
	})
}

// handlers answer the requests to the agent, each kind for those who may ask it.
func (a *Agent) handlers(callers starter.Node, hook string) map[api.Op]server.Handler {
	return map[api.Op]server.Handler{
		api.OpPrepare: {From: server.Jobs, Answer: func(ctx context.Context, q server.Question) api.Reply {
			q.Caller.Hook = callers.IsHook(q.Caller, hook)
			return a.admission.Prepare(ctx, q.Caller, q.Job)
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
				GPUs: a.acceptances(), Whole: a.elastic.Open(), Holds: a.jobs.Holds(), NoStart: a.view.Load().noStart(),
			}
		}},
		api.OpUsage: {From: server.Startds, Answer: func(context.Context, server.Question) api.Reply {
			a.sweepNow() // the slot's next job must not be told what the last one used
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
func (a *Agent) answerHere(_ context.Context, q server.Question) api.Reply {
	c, err := q.Identify()
	if errors.Is(err, starter.ErrNoSlot) {
		return api.Reply{NoJob: true}
	}
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return api.Reply{Here: a.reader.Here(c, time.Now())}
}

// answerNode shows everybody the state of the node, and operators the jobs and processes, too.
func (a *Agent) answerNode(_ context.Context, q server.Question) api.Reply {
	if !q.Operator && q.Verb != api.VerbStatus {
		return api.Reply{Error: fmt.Sprintf("only root and the agent's account may %s the node: run gpuslot as root", q.Verb)}
	}
	n, err := a.askNode(q.Request)
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	if !q.Operator {
		n.Jobs, n.Holders, n.Waits = nil, nil, ""
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
