package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/faults/order"
)

// startd is the test in HTCondor's place: it keeps the sums, starts jobs where
// GPUs accept them, and tells the agent of its slots when asked.
type startd struct {
	*node
	rand   *rand.Rand
	jobs   []*job // all whose starter may still run
	number int
	// admitted and refused count the hook's answers.
	admitted, refused int
}

func newStartd(n *node, seed uint64) *startd {
	return &startd{node: n, rand: rand.New(rand.NewPCG(seed, 0))}
}

// advertise writes what condor_status tells: one ad for each dynamic slot.
func (n *node) advertise(jobs []*job) {
	var ads []string
	for _, j := range jobs {
		ads = append(ads, j.Ad())
	}
	tmp := n.path("slots.new")
	if err := os.WriteFile(tmp, []byte("["+strings.Join(ads, ",\n")+"]\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(tmp, n.path("slots")); err != nil {
		n.t.Fatal(err)
	}
}

// bury forgets the jobs whose starters have ended.
func (s *startd) bury() {
	left := s.jobs[:0]
	for _, j := range s.jobs {
		if !j.Over() {
			left = append(left, j)
		}
	}
	s.jobs = left
	s.advertise(s.jobs)
}

// on are the jobs that hold a part of a GPU.
func (s *startd) on(gpu int) []*job {
	var out []*job
	for _, j := range s.jobs {
		if j.gpu == gpu && !j.Over() {
			out = append(out, j)
		}
	}
	return out
}

// start starts a job that is tried again while the agent is too slow on this
// machine to watch budgets, as HTCondor does: it matches the job again.
func (s *startd) start(r request) (j *job, why string) {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		j, why = s.try(r)
		if j != nil || !strings.Contains(why, "has not been read for") || time.Now().After(end) {
			return j, why
		}
	}
}

// try places a job and waits for the hook; a refused one is buried.
func (s *startd) try(r request) (j *job, why string) {
	s.number++
	j = s.job(r, s.number)
	s.advertise(append(s.jobs[:len(s.jobs):len(s.jobs)], j)) // the startd knows of a slot before its starter runs
	s.run(j)
	err := j.answer()
	if err == nil {
		s.admitted++
		s.jobs = append(s.jobs, j)
		return j, ""
	}
	s.refused++
	j.Kill()
	s.advertise(s.jobs)
	return nil, err.Error()
}

// accounts are those of the jobs; nobody else on a machine has them.
var accounts = []uint32{64101, 64102, 64103}

// quantum is the step of budgets, smallest the smallest, in MiB: the defaults
// of gpuslot.toml.
const (
	quantum  = 512
	smallest = 1536
)

// idle waits for the end of its standard input, with its memory in use.
func idle(mib int64) string { return fmt.Sprintf("alloc %d load 20 20ms until eof", mib) }

// busy keeps the GPU busy for longer than any test takes.
func busy(mib int64) string { return fmt.Sprintf("alloc %d load 40 600s", mib) }

// workFor is how much of its budget a job uses for memory of its own: the rest
// is its context's and what is on the way.
func workFor(budget int64) int64 { return budget/2 - 256 }

// fill starts jobs on a GPU, as START would allow, until want run there.
func (s *startd) fill(gpu, want int) {
	s.t.Helper()
	for range want {
		s.bury()
		if len(s.on(gpu)) >= want {
			return
		}
		r, ok := s.room(gpu)
		if !ok {
			return
		}
		if _, why := s.start(r); why != "" && !strings.Contains(why, "closed") {
			s.t.Logf("a job on GPU %d is refused: %s", gpu, why)
		}
	}
}

// room is match, and waits for a GPU that takes no jobs for a moment.
func (s *startd) room(gpu int) (request, bool) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		st, err := s.status()
		if err == nil {
			r, ok := s.match(st, gpu)
			if g := s.gpuOf(st, gpu); ok || g != nil && g.Accept {
				return r, ok
			}
		}
		if time.Now().After(end) {
			return request{}, false
		}
	}
}

// match is a job that fits a GPU by what the agent and the sums say.
func (s *startd) match(st *api.Status, gpu int) (request, bool) {
	g := s.gpuOf(st, gpu)
	if g == nil || !g.Accept {
		return request{}, false
	}
	uid := accounts[s.rand.IntN(len(accounts))]
	left := g.PoolMiB
	for _, j := range s.on(gpu) {
		left -= j.budget
		uid = j.uid
	}
	owner := request{uid: uid}.owner()
	n := len(s.on(gpu))
	if n >= g.Shares || left < smallest || g.Tenant != "" && g.Tenant != owner {
		return request{}, false
	}
	// The others must fit, too.
	most := min(max(left-int64(g.Shares-n-1)*smallest, smallest), g.PoolMiB/shares*2) / quantum
	budget := quantum * (smallest/quantum + s.rand.Int64N(most-smallest/quantum+1))
	return request{gpu: gpu, uid: uid, budget: budget, processes: []string{idle(workFor(budget))}}, true
}

func (s *startd) gpuOf(st *api.Status, gpu int) *api.StatusGPU {
	for i := range st.GPUs {
		if st.GPUs[i].UUID == s.uuids[gpu] {
			return &st.GPUs[i]
		}
	}
	return nil
}

// finish lets a job come to its own end and waits for it.
func (s *startd) finish(j *job) {
	s.t.Helper()
	j.Say(order.Finish)
	s.await(j)
}

// kill ends a job by force and waits for its starter.
func (s *startd) kill(j *job, why string) {
	s.t.Helper()
	j.touch(why)
	j.Say(order.Kill)
	s.await(j)
}

func (s *startd) await(j *job) {
	s.t.Helper()
	if !j.OverWithin(patience) {
		s.t.Fatalf("%s does not end", j)
	}
	s.bury()
	s.monitor()
}

// monitor is the question of the program that STARTD_CRON keeps running: it
// tells which jobs to hold, and lets the agent see who has ended.
func (s *startd) monitor() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	reply, err := api.Call(ctx, s.socket(), api.Request{Op: api.OpMonitor})
	if err != nil {
		return // the agent is away; its answers are looked at elsewhere
	}
	for _, h := range reply.Holds {
		for _, j := range s.jobs {
			if short, _, _ := strings.Cut(h.Slot, "@"); short == j.Name && h.Job == j.Job {
				j.hold(h.Reason)
			}
		}
	}
}

// clear ends all jobs, those that can by themselves.
func (s *startd) clear() {
	for _, j := range s.jobs {
		j.Say(order.Finish)
	}
	for _, j := range s.jobs {
		if !j.OverWithin(unforced) {
			j.touch("the end of the test")
			j.Kill()
		}
	}
	s.jobs = nil
}
