package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/faults/order"
)

// roundsVariable says how often TestReactions repeats each reaction on each
// GPU; once without it.
const roundsVariable = "GPUSLOT_REACTIONS"

// reactions measures how soon the agent notices. Times are printed beside the
// aims and judged by people: only what must happen at all is a test.
type reactions struct {
	*campaign
	rounds int
	rows   []reaction
}

// reaction is one line of the table.
type reaction struct {
	what, aim string
	took      []time.Duration
	// together: all GPUs are hurt before the first is waited for.
	together bool
}

// wait is for one GPU that was hurt.
type wait struct {
	begin   time.Time
	noticed func() bool
}

// TestReactions: what happens is noticed, and the conversations with a control
// daemon never overlap, whoever asks for them.
func TestReactions(t *testing.T) {
	if elsewhere(t) {
		return
	}
	rounds, err := strconv.Atoi(os.Getenv(roundsVariable))
	if err != nil {
		rounds = 1
	}
	r := &reactions{campaign: newCampaign(newNode(t, "550.163.01", ""), 1), rounds: rounds}
	defer r.clear()
	r.now = &row{outcomes: map[string]int{}}
	r.observe()
	r.guarded("start", func() { r.settle("all GPUs to open", r.allOpen) })
	for _, s := range []func(){r.overBudgets, r.deadDaemons, r.deadServers, r.wedges, r.crowd} {
		if r.found == nil {
			r.guarded("reactions", s)
		}
	}
	if r.found != nil {
		t.Fatalf("does not hold: %s\n%s", r.found.rule, r.found.text)
	}
	r.clear()
	r.stopAgent(syscall.SIGTERM) // nobody talks any more
	t.Log("reactions, on the simulated node with driver 550\n" + r.table())
	r.conversations()
}

func (r *reactions) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REACTION\tTIMES\tMEDIAN\tWORST\tAIM")
	for _, row := range r.rows {
		s := slices.Sorted(slices.Values(row.took))
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", row.what, len(s), s[len(s)/2].Round(time.Millisecond), s[len(s)-1].Round(time.Millisecond), row.aim)
	}
	w.Flush()
	return b.String()
}

// measured keeps a row, and prints it for who cuts the run off before the table.
func (r *reactions) measured(row reaction) {
	r.rows = append(r.rows, row)
	s := slices.Sorted(slices.Values(row.took))
	r.t.Logf("%s: %d times, median %s, worst %s; aim: %s", row.what, len(s),
		s[len(s)/2].Round(time.Millisecond), s[len(s)-1].Round(time.Millisecond), row.aim)
}

// overBudgets: from the moment at which a job's processes are over its budget to
// the moment at which they meet the end of their clients, less the grace time.
func (r *reactions) overBudgets() {
	row := reaction{what: "over budget, after the grace time of 1 s, to error 810 (the job looks every 50 to 500 ms)", aim: "2 sampling periods of 1 s"}
	for range 4 * r.rounds {
		gpu := len(row.took) % gpus
		j, why := r.start(request{gpu: gpu, uid: accounts[0], budget: 4096, processes: []string{"alloc 2300 until eof", "alloc 2300 until eof"}})
		if j == nil {
			r.fail(settles, "a job is refused: "+why)
		}
		j.touch("over its budget")
		r.until(func() bool { return strings.Count(j.output(), "alloc 2300 MiB: ok") == 2 }, "both processes to have their memory")
		begin := time.Now()
		r.until(func() bool { return strings.Contains(j.output(), "error 810") }, "the job's clients to be terminated")
		row.took = append(row.took, time.Since(begin)-time.Second)
		r.settle("the job to be held, the GPU open", func(st *api.Status) bool {
			return j.Over() && strings.Contains(j.holdReason(), "ask for") && r.allOpen(st)
		})
	}
	r.measured(row)
}

// until is waitFor for what is measured.
func (r *reactions) until(is func() bool, what string) { r.wait(what, time.Millisecond, is) }

// pace gives the agent the health interval that sites have; tests have a
// shorter one.
func (r *reactions) pace(interval string) {
	r.interval = interval
	r.configure("")
	r.reload()
}

// hurt does something to one GPU after the other, at moments that have nothing
// to do with the agent's, and takes the time until it is noticed.
func (r *reactions) hurt(row reaction, harm func(gpu int) (noticed func() bool, undo func())) {
	if r.rounds > 1 {
		r.pace("15s")
		defer r.pace("1s")
	}
	for range r.rounds {
		r.settle("all GPUs to be open", r.allOpen)
		for gpu := range gpus {
			r.populate(gpu, 1)
		}
		r.settle("the agent to know of all servers", func(st *api.Status) bool {
			return !slices.ContainsFunc(st.GPUs, func(g api.StatusGPU) bool { return len(g.Servers) != 1 || g.Servers[0].Clients == 0 })
		})
		var undo []func()
		var waits []wait
		for gpu := range gpus {
			time.Sleep(time.Duration(r.rand.IntN(1000)) * time.Millisecond)
			r.touchAll(gpu, row.what)
			begin := time.Now()
			noticed, u := harm(gpu)
			undo, waits = append(undo, u), append(waits, wait{begin, noticed})
			if !row.together {
				r.awaitAll(&row, &waits)
			}
		}
		r.awaitAll(&row, &waits)
		for _, u := range undo {
			u()
		}
		r.dismiss()
	}
	r.measured(row)
}

// awaitAll books the time of each wait as it ends.
func (r *reactions) awaitAll(row *reaction, waits *[]wait) {
	r.until(func() bool {
		*waits = slices.DeleteFunc(*waits, func(w wait) bool {
			over := w.noticed()
			if over {
				row.took = append(row.took, time.Since(w.begin))
			}
			return over
		})
		return len(*waits) == 0
	}, row.what)
}

// says asks for the status: it tells what the agent saw, and looks at nothing itself.
func (r *reactions) says(gpu int, what func(*api.StatusGPU) bool) func() bool {
	return func() bool {
		st, err := r.status()
		return err == nil && what(r.gpuOf(st, gpu))
	}
}

func nothing() {}

func (r *reactions) deadDaemons() {
	r.hurt(reaction{what: "control daemon killed, to a new one with its limits", aim: "noticed within 2 s"}, func(gpu int) (func() bool, func()) {
		from := len(r.log.String()) // the status looks for itself
		_ = syscall.Kill(r.daemonPID(gpu), syscall.SIGKILL)
		return func() bool {
			return slices.ContainsFunc(strings.Split(r.log.String()[from:], "\n"), func(line string) bool {
				return strings.Contains(line, "control daemon set") && strings.Contains(line, r.uuids[gpu])
			})
		}, nothing
	})
}

func (r *reactions) deadServers() {
	r.hurt(reaction{what: "MPS server killed, to its being gone from the status", aim: "noticed within 2 s"}, func(gpu int) (func() bool, func()) {
		pid := r.server(gpu)
		if pid == 0 {
			r.fail(settles, "no server to kill")
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return r.says(gpu, func(g *api.StatusGPU) bool {
			return !slices.ContainsFunc(g.Servers, func(s api.StatusServer) bool { return s.PID == pid })
		}), nothing
	})
}

// wedges keeps the daemon's only connection without a word.
func (r *reactions) wedges() {
	r.quiet = true
	defer func() { r.quiet = false }()
	aim := "at the next command (15 s), within its deadline (3 s)"
	if r.rounds == 1 {
		aim = "at the next command (1 s), within its deadline (3 s)"
	}
	r.hurt(reaction{what: "control daemon wedged, to its GPU being closed", aim: aim, together: true}, func(gpu int) (func() bool, func()) {
		stranger, err := net.Dial("unixpacket", filepath.Join(r.pipe(gpu), "control"))
		if err != nil {
			r.fail(settles, err.Error())
		}
		return r.says(gpu, func(g *api.StatusGPU) bool { return !g.Accept }), func() { stranger.Close() }
	})
}

// crowd makes everybody ask at once: all jobs of all GPUs come and are told to
// end together, while the health rounds go on.
func (r *reactions) crowd() {
	for range r.rounds {
		r.settle("all GPUs to be open", r.allOpen)
		for gpu := range gpus {
			r.populate(gpu, shares)
		}
		for _, j := range r.jobs {
			j.touch("told to end")
			j.Say(order.Term)
		}
		r.waitFor("all jobs to have ended", func() bool { return !slices.ContainsFunc(r.jobs, func(j *job) bool { return !j.Over() }) })
		r.bury()
	}
}

// observedScript is controlScript with a witness: what each conversation came
// to, and whether another one was under way. The lock ends with its holder.
const observedScript = `#!/bin/sh
export GPUSLOT_SIM_STATE=%s LD_LIBRARY_PATH=%s
PATH=%s:$PATH
[ $# = 0 ] || exec nvidia-cuda-mps-control "$@"
told=%s/${CUDA_MPS_PIPE_DIRECTORY##*/}
exec 9>>"$told.lock"
flock -n 9 || echo overlap >>"$told"
echo begun >>"$told"
in=$(cat)
out=$(printf '%%s\n' "$in" | nvidia-cuda-mps-control 9>&-)
code=$?
mark=${in##*
}
strange=$(printf '%%s\n' "$out" | grep 'Unknown command "eof-' | grep -vc "\"${mark%%-*}-")
if [ "$strange" != 0 ]; then echo mismatch
else case $out in
*"Unknown command \"$mark\"") echo whole ;;
*) echo refused ;;
esac; fi >>"$told"
[ -z "$out" ] || printf '%%s\n' "$out"
exit $code
`

func (r *reactions) observe() {
	r.t.Helper()
	err := os.Mkdir(r.path("told"), 0o777)
	if err == nil {
		err = os.WriteFile(r.path("bin/observed"), fmt.Appendf(nil, observedScript, r.sim.State, r.path("sim/lib"), r.path("sim/bin"), r.path("told")), 0o755)
	}
	if err == nil {
		err = os.Rename(r.path("bin/observed"), r.path("bin/control"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// conversations adds up what the witness saw.
func (r *reactions) conversations() {
	sums := map[string]int{}
	for _, u := range r.uuids {
		b, err := os.ReadFile(r.path("told", u))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, word := range strings.Fields(string(b)) {
			sums[word]++
		}
	}
	r.t.Logf("conversations with %d control daemons: %d, of which %d whole, %d not executed, %d cut off at their deadline; %d overlapped, %d with another's marks (aim: 0 and 0)",
		gpus, sums["begun"], sums["whole"], sums["refused"], sums["begun"]-sums["whole"]-sums["refused"]-sums["mismatch"], sums["overlap"], sums["mismatch"])
	if sums["overlap"] != 0 || sums["mismatch"] != 0 || sums["whole"] == 0 {
		r.t.Error("conversations overlap")
	}
}
