package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	nvidia "github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/faults/order"
	"github.com/gpuslot/gpuslot/test/poll"
)

// injection is one kind of harm. Do harms, says with touch who may suffer, and
// waits for what must come of it.
type injection struct {
	name string
	do   func(c *campaign, gpu int)
}

var digits = regexp.MustCompile(`[0-9]+`)

var injections = []injection{
	{"agent killed", agentKilled},
	{"agent upgraded", agentUpgraded},
	{"control daemon killed", daemonKilled},
	{"control daemon suspended", daemonSuspended},
	{"MPS server killed", serverKilled},
	{"MPS fault", mpsFault},
	{"busy client killed", busyKilled},
	{"busy client terminated, then killed", busyTerminated},
	{"busy job told to end", busyTold},
	{"job over its budget", overBudget},
	{"GPU lost and restored", gpuLost},
	{"XID 31", xid(31)},
	{"XID 43", xid(43)},
	{"XID 48", xid(48)},
	{"XID 79", xid(79)},
	{"XID 94", xid(94)},
	{"XID 119", xid(119)},
	{"no room for the plan file", diskFull},
	{"a share promised twice", doubleBooked},
	{"limits that do not stick", deafDaemon},
	{"limits changed by a job", foreignLimit},
}

func agentKilled(c *campaign, gpu int) {
	c.stopAgent(syscall.SIGKILL)
	c.refusedMeanwhile(gpu)
	c.startAgent()
	c.outcome(gpu, "all GPUs to open again", c.allOpen)
}

// refusedMeanwhile: without an agent no job runs, least of all without limits.
func (c *campaign) refusedMeanwhile(gpu int) {
	r := request{gpu: gpu, uid: accounts[0], budget: smallest, processes: []string{idle(100)}}
	if j, why := c.start(r); j != nil || !strings.Contains(why, "gpuslotd") {
		c.found = &broken{notDoubled, "a job was started without an agent: " + why}
		panic(broke{})
	}
}

// upgraded is the same agent under another version's name.
func upgraded(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "gpuslotd")
	if err := goBuild(out, []string{"-race", "-ldflags", "-X main.version=upgraded"}, "cmd/gpuslotd"); err != nil {
		t.Fatal(err)
	}
	return out
}

func agentUpgraded(c *campaign, gpu int) {
	c.stopAgent(syscall.SIGTERM)
	c.install(c.upgrade)
	c.startAgent()
	c.outcome(gpu, "the new agent to open all GPUs", func(st *api.Status) bool { return st.Version == "upgraded" && c.allOpen(st) })
}

func daemonKilled(c *campaign, gpu int) {
	before := c.daemonPID(gpu)
	c.touchAll(gpu, "its control daemon was killed")
	_ = syscall.Kill(before, syscall.SIGKILL)
	c.outcome(gpu, "a new control daemon", func(st *api.Status) bool {
		g := c.gpuOf(st, gpu)
		return g.Accept && g.DaemonPID != before && g.DaemonPID == c.daemonPID(gpu)
	})
}

func daemonSuspended(c *campaign, gpu int) {
	pid := c.daemonPID(gpu)
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	defer syscall.Kill(pid, syscall.SIGCONT)
	c.outcome(gpu, "the GPU to close", c.closed(gpu))
	_ = syscall.Kill(pid, syscall.SIGCONT)
	c.settle("the same control daemon to serve again", func(st *api.Status) bool {
		g := c.gpuOf(st, gpu)
		return g.Accept && g.DaemonPID == pid
	})
}

// server is the PID of a GPU's MPS server; 0 if none runs.
func (c *campaign) server(gpu int) int {
	for _, s := range c.show().Servers {
		if s.Daemon == c.daemonPID(gpu) {
			return s.PID
		}
	}
	return 0
}

func serverKilled(c *campaign, gpu int) {
	c.populate(gpu, 1)
	c.touchAll(gpu, "its MPS server was killed")
	if pid := c.server(gpu); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	c.outcome(gpu, "the GPU to open", c.serves(gpu))
}

// serves: it is open, and a job that starts there now is well.
func (c *campaign) serves(gpu int) func(*api.Status) bool {
	return func(st *api.Status) bool { return c.gpuOf(st, gpu).Accept && c.works(st, gpu) }
}

// works starts a job on an open GPU and watches it: open means that it works.
func (c *campaign) works(st *api.Status, gpu int) bool {
	c.bury()
	r, ok := c.match(st, gpu)
	if !ok {
		return true // full: then others prove it
	}
	j, _ := c.start(r)
	if j == nil {
		return false
	}
	c.watched = append(c.watched, j)
	c.waitFor("the new job's first words", func() bool { return strings.Contains(j.output(), "load 20") || j.disturbed() != "" || j.Over() })
	why := j.disturbed()
	switch {
	case why == "":
		return true
	case time.Since(c.begin) < noticed:
		// The agent could not know yet; with HTCondor the job would be tried again.
		j.touch("started before the agent could know")
		c.await(j)
		time.Sleep(50 * time.Millisecond)
		return false
	default:
		c.fail(othersRun, "GPU "+strconv.Itoa(gpu)+" was open, and a new job there was not well: "+j.String()+": "+why)
		return false
	}
}

// noticed is when the agent must know what happened: 2 s for a dead daemon or
// server on a quiet machine.
const noticed = time.Minute

// waitFor polls for something that the test itself brings about.
func (c *campaign) waitFor(what string, is func() bool) { c.wait(what, 20*time.Millisecond, is) }

// wait is waitFor with another pause between two questions.
func (c *campaign) wait(what string, pause time.Duration, is func() bool) {
	c.t.Helper()
	if !poll.Until(patience, pause, is) {
		c.fail(settles, "waited in vain for "+what)
	}
}

func (c *campaign) fail(rule, text string) {
	c.found = &broken{rule, text + "\n" + c.story()}
	panic(broke{})
}

func mpsFault(c *campaign, gpu int) {
	c.populate(gpu, 1)
	c.touchAll(gpu, "its MPS server met a fault")
	if c.server(gpu) == 0 {
		return // the GPU is closed for another reason
	}
	c.simgpu("mps", "fault", strconv.Itoa(gpu))
	c.outcome(gpu, "the GPU to serve again", c.serves(gpu))
}

// busyJob starts a job that keeps the GPU busy; nil if the GPU takes none.
func (c *campaign) busyJob(gpu int) *job {
	for _, j := range c.on(gpu)[min(len(c.on(gpu)), shares-1):] {
		c.finish(j) // room for it
	}
	r, ok := c.room(gpu)
	for on := c.on(gpu); !ok && len(on) > 1; on = on[1:] {
		c.finish(on[0])
		r, ok = c.room(gpu)
	}
	if !ok {
		return nil
	}
	r.processes = []string{busy(workFor(r.budget))}
	j, _ := c.start(r)
	if j == nil {
		return nil
	}
	c.waitFor("the job to be busy", func() bool {
		clients := c.clients(j)
		return slices.ContainsFunc(c.show().Processes, func(p simProcess) bool { return p.Load > 0 && slices.Contains(clients, p.PID) })
	})
	c.begin = time.Now()
	return j
}

// busyKilled is what the kernel does to a job that is out of memory: nobody is
// asked, and the neighbours suffer.
func busyKilled(c *campaign, gpu int) {
	j := c.busyJob(gpu)
	if j == nil {
		return
	}
	c.touchAll(gpu, "a busy neighbour was killed")
	_ = syscall.Kill(c.clients(j)[0], syscall.SIGKILL)
	c.outcome(gpu, "the GPU to serve again", c.serves(gpu))
}

// busyTerminated is the clean way: nobody but the job notices.
func busyTerminated(c *campaign, gpu int) {
	j := c.busyJob(gpu)
	if j == nil {
		return
	}
	j.touch("terminated by the test")
	client := c.clients(j)[0]
	if out := c.ask(gpu, 0, fmt.Sprintf("terminate_client %d %d", c.server(gpu), client)); out != "0" {
		c.fail(settles, "terminate_client: "+out)
	}
	_ = syscall.Kill(client, syscall.SIGKILL)
	c.outcome(gpu, "the GPU to serve", c.serves(gpu))
}

// ask puts commands, one of which is answered, to a GPU's control daemon. One
// that is talking to the agent refuses a second caller, also with rc 0 and
// nothing said: then it is asked again.
func (c *campaign) ask(gpu int, uid uint32, lines ...string) string {
	var out string
	c.waitFor("an answer to "+lines[0], func() bool {
		var err error
		out, err = c.control(gpu, uid, lines...)
		return err == nil && out != ""
	})
	return out
}

// busyTold is condor_rm: SIGTERM for the job, SIGKILL after a while.
func busyTold(c *campaign, gpu int) {
	j := c.busyJob(gpu)
	if j == nil {
		return
	}
	j.touch("told to end")
	j.Say(order.Term)
	c.outcome(gpu, "the GPU to serve", func(st *api.Status) bool { return j.Over() && c.serves(gpu)(st) })
}

// overBudget is several processes, none of them over the limit, together far
// over the budget.
func overBudget(c *campaign, gpu int) {
	for _, j := range c.on(gpu)[min(len(c.on(gpu)), shares/2):] {
		c.finish(j)
	}
	st, err := c.status()
	if err != nil {
		return
	}
	r, ok := c.match(st, gpu)
	if !ok {
		return
	}
	one := idle(r.budget/2 + 64)
	r.processes = []string{one, one, one}
	j, _ := c.start(r)
	if j == nil {
		return
	}
	j.touch("over its budget")
	// Error 810 of its clients is in the test of reactions: on a busy machine the starter may kill them
	// before they can print it.
	c.outcome(gpu, "the job to be held and to end, and the GPU open", func(st *api.Status) bool {
		return j.Over() && strings.Contains(j.holdReason(), "ask for") && c.gpuOf(st, gpu).Accept
	})
}

func gpuLost(c *campaign, gpu int) {
	c.touchAll(gpu, "its GPU fell off the bus")
	c.lost = gpu
	c.simgpu("lose", strconv.Itoa(gpu))
	c.outcome(gpu, "the GPU to close", c.closed(gpu))
	if c.now.count%2 == 1 { // it comes back only after a look at the hardware
		c.settle("the GPU to go out of the plan", func(st *api.Status) bool { return c.startd.gpuOf(st, gpu) == nil })
	}
	c.simgpu("restore", strconv.Itoa(gpu))
	c.openByHand(gpu) // XID 79 went with it
	c.settle("the GPU to open again", func(st *api.Status) bool {
		// A look under way at the override still saw the GPU lost: one fault more,
		// and after a third in 24 h the GPU opens only later.
		if strings.Contains(c.gpuOf(st, gpu).Reason, "it was reset and opens at") {
			c.openByHand(gpu)
			return false
		}
		return c.serves(gpu)(st)
	})
	c.lost = -1
	c.deafUntil[gpu] = time.Now().Add(heardAgain)
}

// heardAgain is how long the events of a GPU that came back may go unheard: the
// agent listens again within twice nvml's lookAgain of 1 s. On a slow machine it
// is later, and the event is told again.
const (
	heardAgain = 3 * time.Second
	tellAgain  = 20 * time.Second
)

// xid is an event of the GPU: a job's fault leaves it open or opens it again,
// anything worse closes it until somebody has done something about it.
func xid(number int) func(*campaign, int) {
	return func(c *campaign, gpu int) {
		index := strconv.Itoa(gpu)
		c.waitFor("the agent to listen to the GPU again", func() bool { return time.Now().After(c.deafUntil[gpu]) })
		c.simgpu("xid", index, strconv.Itoa(number))
		if nvidia.XIDByNumber(number).Class == nvidia.XIDApplication {
			c.outcome(gpu, "the GPU to be open", c.open(gpu))
			return
		}
		told := time.Now()
		c.outcome(gpu, "the GPU to close for it", func(st *api.Status) bool {
			g := c.gpuOf(st, gpu)
			if g.Accept && time.Since(told) > tellAgain {
				c.simgpu("xid", index, strconv.Itoa(number))
				told = time.Now()
			}
			return !g.Accept && strings.Contains(g.Reason, fmt.Sprintf("Xid %d ", number))
		})
		c.openByHand(gpu)
		c.settle("the GPU to serve", c.serves(gpu))
	}
}

// openByHand is the operator's word that a GPU may be used again.
func (c *campaign) openByHand(gpu int) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, err := c.gpuslot("gpu", "open", "--override", c.uuids[gpu])
		switch later := strings.Contains(out, "there is no GPU") && time.Now().Before(end); {
		case err == nil:
			return
		case !later: // a GPU that was lost may not be in the plan yet
			c.fail(settles, "gpuslot gpu open: "+out)
		}
	}
}

// diskFull: a new plan that cannot be written, and an agent that may be killed
// meanwhile.
func diskFull(c *campaign, gpu int) {
	fill, err := os.Create(c.path("r/fill"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer fill.Close()
	defer os.Remove(fill.Name())
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = fill.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			c.t.Fatal(err)
		}
	}
	plan, _ := os.ReadFile(c.path("r/plan.json"))
	c.cpus = 8 + (c.cpus+1)%8 // never what it is now
	c.configure("[cpu_only]\ncpus = " + strconv.Itoa(c.cpus))
	if c.rand.IntN(2) == 0 {
		c.reload()
	} else {
		c.stopAgent(syscall.SIGKILL)
		c.startAgent()
	}
	c.outcome(gpu, "the status to tell of it", func(st *api.Status) bool {
		return slices.ContainsFunc(st.Warnings, func(w string) bool { return strings.Contains(w, "no space left") })
	})
	os.Remove(fill.Name())
	fill.Close()
	c.settle("the plan to be written", func(st *api.Status) bool {
		now, err := os.ReadFile(c.path("r/plan.json"))
		return err == nil && !bytes.Equal(now, plan) && c.allOpen(st) &&
			!slices.ContainsFunc(st.Warnings, func(w string) bool { return strings.Contains(w, "no space left") })
	})
}

// doubleBooked: a startd of another layout wants more than there is.
func doubleBooked(c *campaign, gpu int) {
	c.populate(gpu, shares)
	st, err := c.status()
	on := c.on(gpu)
	if err != nil || len(on) == 0 {
		return
	}
	g := c.gpuOf(st, gpu)
	left := g.PoolMiB
	for _, j := range on {
		left -= j.budget
	}
	r := request{gpu: gpu, uid: on[0].uid, budget: max(left+quantum, smallest) / quantum * quantum, processes: []string{idle(100)}}
	if len(on) < g.Shares && r.budget > g.PoolMiB {
		return
	}
	if j, _ := c.start(r); j != nil {
		c.watched = append(c.watched, j)
	}
	c.outcome(gpu, "the GPU to be closed until a job ends", c.closed(gpu))
	c.finish(on[0])
	c.settle("the GPU to open", c.open(gpu))
}

// deafDaemon: a control daemon on which limits do not stick serves nobody.
func deafDaemon(c *campaign, gpu int) {
	c.touchAll(gpu, "its control daemon was killed")
	if err := os.WriteFile(c.path("deaf"), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	defer os.Remove(c.path("deaf"))
	before := c.daemonPID(gpu)
	_ = syscall.Kill(before, syscall.SIGKILL)
	c.waitFor("a new control daemon", func() bool { pid := c.daemonPID(gpu); return pid != 0 && pid != before })
	c.outcome(gpu, "the GPU to stay closed", c.closed(gpu))
	os.Remove(c.path("deaf"))
	c.settle("the GPU to open with its limit", c.serves(gpu))
}

// foreignLimit: driver 535 lets every account that reaches the daemon change
// its defaults.
func foreignLimit(c *campaign, gpu int) {
	c.populate(gpu, 1)
	on := c.on(gpu)
	if len(on) == 0 {
		return
	}
	out := c.ask(gpu, on[0].uid, "set_default_device_pinned_mem_limit 0 90G", "get_default_device_pinned_mem_limit 0")
	if denied := strings.Contains(out, "Insufficient privileges"); denied == strings.HasPrefix(c.driver, "535") {
		c.fail(settles, "the simulated daemon answers a job: "+out)
	}
	c.outcome(gpu, "the limit to be as it was", c.open(gpu))
}
