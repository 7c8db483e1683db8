package mps

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// EndRules bound how clients are ended.
type EndRules struct {
	// Again is the time after which a client that is still there is terminated
	// once more; positive.
	Again time.Duration
	// Deadline is how long all of it may take.
	Deadline time.Duration
}

// DefaultEndRules leave time for the work in flight of a large GPU and stay well
// below HTCondor's ten seconds between its signals.
var DefaultEndRules = EndRules{Again: time.Second, Deadline: 5 * time.Second}

// Ending is the end of a set of processes as clients, so far. It is a value.
type Ending struct {
	PIDs  []int
	Began time.Time
	Rules EndRules
	asked map[int]asked
}

type asked struct {
	at    time.Time
	ended bool
}

// Order is one Terminate.
type Order struct {
	Server  process.ID
	Clients []int
}

// EndStep is what to do next in an Ending.
type EndStep struct {
	// Terminate are the orders to give now, in this order.
	Terminate []Order
	// Free are the processes that a signal may end without harm to others: those
	// that are no clients, whose work was ended, or whose server is in FAULT and
	// has none; in the order of PIDs. Each rests on an answer of the server itself
	// or of the daemon about it, never on a missing one.
	Free []int
	// Waiting are the others.
	Waiting []int
	// Overdue says that the deadline has passed. Whether Waiting have work is then
	// not known: a signal to them may end their neighbours, so nobody sends one.
	Overdue bool
}

// Done says that nothing is left to wait for.
func (s EndStep) Done() bool { return len(s.Waiting) == 0 || s.Overdue }

// BeginEnding begins the end of processes as clients.
func BeginEnding(pids []int, now time.Time, rules EndRules) Ending {
	own := slices.Clone(pids)
	slices.Sort(own)
	return Ending{PIDs: slices.Compact(own), Began: now, Rules: rules}
}

// Step decides from the servers as they are now. Orders go by server and, in
// it, to the youngest first by PID: a parent could otherwise replace its child.
func (e Ending) Step(now time.Time, servers []Server) EndStep {
	step := EndStep{Overdue: now.Sub(e.Began) >= e.Rules.Deadline}
	for _, pid := range e.PIDs {
		if e.free(pid, servers) {
			step.Free = append(step.Free, pid)
		} else {
			step.Waiting = append(step.Waiting, pid)
		}
	}
	for _, s := range servers {
		if due := e.due(now, s, step.Waiting); len(due) > 0 {
			step.Terminate = append(step.Terminate, Order{Server: s.ID, Clients: due})
		}
	}
	return step
}

// free: no server that counts has the process as a client with work.
func (e Ending) free(pid int, servers []Server) bool {
	return e.asked[pid].ended || !slices.ContainsFunc(servers, func(s Server) bool {
		// A server that does not answer may have any client, also while it begins:
		// those that wait for it are served as soon as it is ready.
		return s.Status != Faulted && (!s.Answers() || slices.Contains(s.Clients, pid))
	})
}

func (e Ending) due(now time.Time, s Server, waiting []int) []int {
	if s.Status == Faulted {
		return nil
	}
	var due []int
	for _, pid := range waiting {
		before, was := e.asked[pid]
		if slices.Contains(s.Clients, pid) && (!was || now.Sub(before.at) >= e.Rules.Again) {
			due = append(due, pid)
		}
	}
	slices.SortFunc(due, func(a, b int) int { return cmp.Compare(b, a) })
	return due
}

// Answered is the ending after answers to its orders.
func (e Ending) Answered(now time.Time, answers []Termination) Ending {
	next := map[int]asked{}
	maps.Copy(next, e.asked)
	for _, t := range answers {
		next[t.Client] = asked{at: now, ended: next[t.Client].ended || t.Ended()}
	}
	e.asked = next
	return e
}

// EndClients ends processes as clients of this daemon by the rules, and
// returns the last step: whom a signal may end now, and for whom the time ran
// out. The error then says why. Processes that are no clients cost one run of the
// command line, clients one more.
func (d *Daemon) EndClients(ctx context.Context, pids []int, rules EndRules) (EndStep, error) {
	ctx, cancel := context.WithTimeout(ctx, rules.Deadline)
	defer cancel()
	e := BeginEnding(pids, time.Now(), rules)
	var servers []Server     // of the last look
	var serving []process.ID // servers that had one of them as a client
	pause := backoff.Doubling{First: 10 * time.Millisecond, Longest: rules.Again}
	for try := 1; ; try++ {
		now, err := d.Servers(ctx)
		if err != nil {
			if ctx.Err() != nil && len(servers) > 0 { // the deadline, in the middle of a look
				err = d.notEnded(e.PIDs, servers, rules.Deadline)
			}
			return EndStep{Waiting: e.PIDs, Overdue: true}, err
		}
		servers = withUnlisted(now, serving)
		serving = serversOf(e.PIDs, servers, serving)
		step := e.Step(time.Now(), servers)
		for _, o := range step.Terminate {
			answers, err := d.Terminate(ctx, o.Server, o.Clients...)
			if err != nil && FaultOf(err) != NoServer {
				return step, err
			}
			e = e.Answered(time.Now(), answers)
		}
		step = e.Step(time.Now(), servers)
		if len(step.Waiting) == 0 {
			return step, nil
		}
		if step.Done() || backoff.Wait(ctx, pause.After(try)) != nil {
			step.Overdue = true
			return step, d.notEnded(step.Waiting, servers, rules.Deadline)
		}
	}
}

// serversOf adds the servers that have one of some processes as a client.
func serversOf(pids []int, servers []Server, known []process.ID) []process.ID {
	for _, s := range servers {
		if slices.ContainsFunc(s.Clients, func(c int) bool { return slices.Contains(pids, c) }) &&
			!slices.Contains(known, s.ID) {
			known = append(known, s.ID)
		}
	}
	return known
}

// withUnlisted adds the servers that live on though their daemon does not list them
// any more, as after its end. They do not answer.
func withUnlisted(servers []Server, serving []process.ID) []Server {
	for _, p := range serving {
		listed := slices.ContainsFunc(servers, func(s Server) bool { return s.ID == p })
		if !listed && proc.Runs(p) {
			servers = append(servers, Server{ID: p})
		}
	}
	return servers
}

const notKnown = "whether they still have work on the GPU is not known, so nothing here kills them; look at gpuslot " +
	"status"

// notEnded says why processes still count as clients at the deadline.
func (d *Daemon) notEnded(pids []int, servers []Server, after time.Duration) error {
	for _, s := range servers {
		if !s.Answers() && s.Status != Faulted {
			return d.fault(Wedged, nil, "clients %v were not ended within %v because server %d does not answer: "+
				"%s", pids, after, s.PID, notKnown)
		}
	}
	return d.fault(Wedged, nil, "clients %v did not end within %v: %s", pids, after, notKnown)
}
