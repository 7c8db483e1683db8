package faults

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/poll"
)

// campaign is a run of injections on one node.
type campaign struct {
	*startd
	// watched are jobs that nothing may disturb unless they are touched.
	watched []*job
	rows    map[string]*row
	now     *row // of the injection under way
	begin   time.Time
	settled bool
	// found is the first thing that did not hold; the campaign ends with it.
	found *broken
	// upgrade is another build of the agent, for the injection of that name.
	upgrade string
	// deafUntil is until when events of a GPU that was lost may go unheard.
	deafUntil [gpus]time.Time
	// lost is the GPU that fell off the bus, -1 if none: see gpuOf.
	lost    int
	cpus    int // kept for jobs without GPUs, by the last change
	history []string
	// heals is how long something broken may be seen without a break until the
	// campaign ends with it. A broken agent's is shorter than patience.
	heals time.Duration
	// quiet keeps the test from asking control daemons itself.
	quiet bool
	// idleFirst leaves the node without jobs for the first injection.
	idleFirst bool
}

// row is one line of the table.
type row struct {
	count    int
	outcomes map[string]int
	took     []time.Duration
}

// broke ends a campaign from within an injection.
type broke struct{}

// patience ends a broken run: what is waited for takes the node seconds, and
// longer on a machine with other work.
const patience = 5 * time.Minute

func newCampaign(n *node, seed uint64) *campaign {
	return &campaign{startd: newStartd(n, seed), rows: map[string]*row{}, heals: patience, lost: -1}
}

// run makes the injections in turn until one leaves something broken.
func (c *campaign) run(list []injection) *broken {
	defer c.clear()
	c.guarded("start", func() {
		c.begin = time.Now()
		c.settle("all GPUs to open", c.allOpen)
	})
	for i, inj := range list {
		if c.found != nil {
			break
		}
		gpu := c.rand.IntN(gpus)
		where := fmt.Sprintf("injection %d, %s on GPU %d", i+1, inj.name, gpu)
		begin := time.Now()
		c.guarded(where, func() { c.inject(inj, gpu) })
		c.history = append(c.history, fmt.Sprintf("%s: %s", where, time.Since(begin).Round(time.Millisecond)))
	}
	return c.found
}

// guarded runs a step and says where it broke.
func (c *campaign) guarded(where string, step func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(broke); !ours {
				panic(r)
			}
			c.found.text = where + ": " + c.found.text
		}
	}()
	step()
}

func (c *campaign) inject(inj injection, gpu int) {
	if c.rows[inj.name] == nil {
		c.rows[inj.name] = &row{outcomes: map[string]int{}}
	}
	c.now = c.rows[inj.name]
	c.now.count++
	// What comes of it must not be what came of the one before.
	c.settle("all GPUs to be open", c.allOpen)
	for i := range gpus {
		if !c.idleFirst {
			c.populate(i, 2+c.rand.IntN(shares-1))
		}
	}
	c.idleFirst = false
	c.settled = false
	c.begin = time.Now()
	inj.do(c, gpu)
	c.dismiss()
	// Ends that nobody forces, now and then.
	if on := c.on(c.rand.IntN(gpus)); len(on) > 0 {
		c.finish(on[0])
	}
}

// unforced is how long a job may take to end by itself. Some never do.
const unforced = 10 * time.Second

// dismiss ends the jobs that were touched: by themselves if they can, since a
// busy client that is killed harms its neighbours.
func (c *campaign) dismiss() {
	for _, j := range slices.Clone(c.jobs) {
		if !j.isTouched() {
			continue
		}
		j.Say(order.Finish)
		if !j.OverWithin(unforced) {
			c.kill(j, "")
		}
	}
	c.bury()
}

// populate fills a GPU and watches its jobs.
func (c *campaign) populate(gpu, want int) {
	c.fill(gpu, want)
	for _, j := range c.on(gpu) {
		if !slices.Contains(c.watched, j) {
			c.watched = append(c.watched, j)
		}
	}
}

// touchAll says that an injection may take along all jobs of a GPU.
func (c *campaign) touchAll(gpu int, why string) {
	for _, j := range c.on(gpu) {
		j.touch(why)
	}
}

// settle polls until the node is as it should be and everything holds. The
// first one of an injection gives its outcome and time.
func (c *campaign) settle(what string, is func(*api.Status) bool) {
	c.t.Helper()
	var last *broken
	since := time.Now()
	end := since.Add(patience)
	poll.Until(patience, 50*time.Millisecond, func() bool {
		c.monitor()
		st, b := c.look()
		late, so := time.Now().After(end), b == nil && is(st)
		// Daemons have one connection: they are asked when there is a point in it.
		if b == nil && !c.quiet && (late || so) {
			b = c.limits(st)
		}
		if b == nil && so {
			last = nil
			return true
		}
		if b == nil {
			b = &broken{settles, "waited in vain for " + what}
		}
		if last == nil || b.rule != last.rule || b.rule == settles {
			since = time.Now()
		}
		last = b
		return late || last.rule == othersRun || time.Since(since) > c.heals // that does not heal
	})
	if last == nil {
		return
	}
	last.text += "\n" + c.story()
	c.found = last
	panic(broke{})
}

// outcome is settle for the injection's own GPU, and books the time and what became of it.
func (c *campaign) outcome(gpu int, what string, is func(*api.Status) bool) {
	c.t.Helper()
	var seen *api.Status
	c.settle(what, func(st *api.Status) bool { seen = st; return is(st) })
	if c.settled {
		return
	}
	c.settled = true
	c.now.took = append(c.now.took, time.Since(c.begin))
	text := "open"
	if g := c.gpuOf(seen, gpu); !g.Accept {
		text = "closed: " + strings.NewReplacer(c.uuids[gpu], "GPU").Replace(g.Reason)
	}
	c.now.outcomes[digits.ReplaceAllString(text, "N")]++
}

// gpuOf is a GPU in the status; nil if it is not there. One that is lost goes out of the plan with the agent's next
// look at the hardware, and the status says in its place that a GPU does not answer.
func (c *campaign) gpuOf(st *api.Status, gpu int) *api.StatusGPU {
	g := c.startd.gpuOf(st, gpu)
	if g == nil && gpu == c.lost {
		for _, problem := range st.Warnings {
			if strings.HasPrefix(problem, "a GPU does not answer: ") {
				return &api.StatusGPU{Reason: problem}
			}
		}
	}
	return g
}

func (c *campaign) open(gpu int) func(*api.Status) bool {
	return func(st *api.Status) bool { return c.gpuOf(st, gpu).Accept }
}

func (c *campaign) closed(gpu int) func(*api.Status) bool {
	return func(st *api.Status) bool { return !c.gpuOf(st, gpu).Accept }
}

func (c *campaign) allOpen(st *api.Status) bool {
	for i := range gpus {
		if !c.gpuOf(st, i).Accept {
			return false
		}
	}
	return true
}

// story is everything that tells what happened.
func (c *campaign) story() string {
	var b strings.Builder
	text, err := c.gpuslot("status")
	fmt.Fprintf(&b, "gpuslot status (%v):\n%s\n\n%s\n\njobs:\n", err, text, c.simgpu("show"))
	for _, j := range c.jobs {
		out := j.output()
		fmt.Fprintf(&b, "%s; it printed last: %q\n", j, out[max(0, len(out)-200):])
	}
	fmt.Fprintln(&b, "\nprocesses:")
	for _, p := range c.processes() {
		if p.program != "simjob" && p.program != "condor_starter" {
			fmt.Fprintln(&b, p)
		}
	}
	fmt.Fprintf(&b, "\nbefore:\n%s\n", strings.Join(c.history[max(0, len(c.history)-10):], "\n"))
	lines := strings.Split(c.log.String(), "\n")
	fmt.Fprintf(&b, "\nthe agent's log (%d lines, the last):\n%s", len(lines), strings.Join(lines[max(0, len(lines)-80):], "\n"))
	return b.String()
}

// table is the campaign's result.
func (c *campaign) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INJECTION\tCOUNT\tSETTLED IN (MEDIAN)\tOUTCOME")
	for _, name := range slices.Sorted(maps.Keys(c.rows)) {
		r := c.rows[name]
		slices.Sort(r.took)
		median := "-"
		if len(r.took) > 0 {
			median = r.took[len(r.took)/2].Round(time.Millisecond).String()
		}
		for i, o := range slices.Sorted(maps.Keys(r.outcomes)) {
			text := fmt.Sprintf("%d× %s", r.outcomes[o], o)
			if i == 0 {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", name, r.count, median, text)
			} else {
				fmt.Fprintf(w, "\t\t\t%s\n", text)
			}
		}
	}
	w.Flush()
	fmt.Fprintf(&b, "%d jobs admitted, %d refused\n", c.admitted, c.refused)
	return b.String()
}

// The campaign that the project must survive: each kind once, with a fixed seed,
// and with GPUSLOT_CAMPAIGN=1 500 of a fresh one, a third with each driver.
func TestCampaign(t *testing.T) {
	beside(t)
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(longVariable) == "" {
		runCampaign(t, drivers[seed%uint64(len(drivers))], seed, len(injections))
		return
	}
	for i, driver := range drivers {
		runCampaign(t, driver, seed+uint64(i), (500+i)/len(drivers))
	}
}

const (
	longVariable = "GPUSLOT_CAMPAIGN"
	seedVariable = "GPUSLOT_CAMPAIGN_SEED"
	fixedSeed    = 20261121
)

// freshSeed chooses the seed for all processes of these tests.
func freshSeed() {
	seed := uint64(fixedSeed)
	if os.Getenv(longVariable) != "" {
		seed = uint64(time.Now().UnixNano())
	}
	if os.Getenv(seedVariable) == "" {
		os.Setenv(seedVariable, strconv.FormatUint(seed, 10))
	}
}

func runCampaign(t *testing.T, driver string, seed uint64, count int) {
	branch, _, _ := strings.Cut(driver, ".")
	t.Run(branch, func(t *testing.T) {
		if elsewhere(t) {
			return
		}
		t.Logf("seed %d, driver %s, %d injections; repeat with %s=%s", seed, driver, count, seedVariable, os.Getenv(seedVariable))
		begin := time.Now()
		c := newCampaign(newNode(t, driver, ""), seed)
		c.upgrade = upgraded(t)
		b := c.run(c.order(count))
		t.Logf("%s\n%s", time.Since(begin).Round(time.Second), c.table())
		if testing.Verbose() {
			t.Log(strings.Join(c.history, "\n"))
		}
		if b != nil {
			t.Fatalf("does not hold: %s\n%s", b.rule, b.text)
		}
	})
}

// order has every kind as often as the others, in an order of the seed's.
func (c *campaign) order(count int) []injection {
	kinds := injections
	if only := os.Getenv("GPUSLOT_CAMPAIGN_ONLY"); only != "" {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(i injection) bool { return !regexp.MustCompile(only).MatchString(i.name) })
		count = min(count, 4*len(kinds))
	}
	list := make([]injection, 0, count)
	for len(list) < count {
		for _, i := range c.rand.Perm(len(kinds)) {
			list = append(list, kinds[i])
		}
	}
	return list[:count]
}

// drivers are the branches whose control daemons were measured.
var drivers = []string{"535.261.03", "550.163.01", "555.58.02"}
