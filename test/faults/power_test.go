package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestPowerCut: the power fails at a random write of the agent, while jobs run and an
// operator closes and opens GPUs. /run is empty after that, and everything has ended. What
// the operator was told holds afterwards, and the node serves. Four times, or 50 with
// GPUSLOT_CAMPAIGN=1.
func TestPowerCut(t *testing.T) {
	if elsewhere(t) {
		return
	}
	rounds := 4
	if os.Getenv(longVariable) != "" {
		rounds = 50
	}
	c := newCampaign(newNode(t, "550.163.01", plain()), uint64(fixedSeed))
	defer c.clear()
	c.now = &row{outcomes: map[string]int{}}
	closed := make([]bool, gpus) // as the operator was told last
	for round := range rounds {
		c.guarded(fmt.Sprintf("power cut %d", round+1), func() { c.powerCut(closed) })
		if c.found != nil {
			t.Fatalf("does not hold after %d power cuts: %s\n%s", round, c.found.rule, c.found.text)
		}
	}
	t.Logf("%d power cuts", rounds)
}

// powerCut cuts the power once, and checks what came of it.
func (c *campaign) powerCut(closed []bool) {
	asTold := func(st *api.Status) bool {
		for i := range gpus {
			if g := c.gpuOf(st, i); g.Accept == closed[i] || closed[i] && !strings.Contains(g.Reason, "a fan") {
				return false
			}
		}
		return true
	}
	c.settle("the GPUs to be open and closed as the operator was told", asTold)
	for i := range gpus {
		if !closed[i] {
			c.settle("a job to run", c.serves(i))
		}
	}
	cut := c.cutAtWrite(1 + c.rand.IntN(12))
	unknown := c.operate(closed, cut)
	<-cut
	c.killAll()
	if err := unix.Unmount(c.path("r"), unix.MNT_DETACH); err != nil {
		c.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", c.path("r"), "tmpfs", 0, "size=4m,mode=755"); err != nil {
		c.t.Fatal(err)
	}
	c.startAgent()
	// What was under way when the power failed may be done or not.
	c.settle("the node to be back", func(st *api.Status) bool {
		if unknown >= 0 {
			g := c.gpuOf(st, unknown)
			closed[unknown] = strings.Contains(g.Reason, "a fan")
		}
		return asTold(st)
	})
	left, err := filepath.Glob(c.path("s/*.unreadable"))
	if err != nil || len(left) > 0 {
		c.fail(settles, "files were torn: "+strings.Join(left, " "))
	}
}

// cutAtWrite kills the agent at the n-th change of a file in its directories from now on,
// and closes the channel then.
func (c *campaign) cutAtWrite(n int) <-chan struct{} {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range []string{"r", "s", "s/history", "s/records"} {
		_, err := unix.InotifyAddWatch(watch, c.path(dir), unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_DELETE)
		if err != nil && err != unix.ENOENT {
			c.t.Fatal(err)
		}
	}
	cut, pid := make(chan struct{}), c.agent.Process.Pid
	go func() {
		defer close(cut)
		defer unix.Close(watch)
		buffer := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
		for range n {
			if _, err := unix.Read(watch, buffer); err != nil {
				break
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}()
	return cut
}

// operate closes and opens GPUs until the power fails. It returns the GPU whose last change
// was not confirmed; -1 if there is none.
func (c *campaign) operate(closed []bool, cut <-chan struct{}) (unknown int) {
	for {
		gpu := c.rand.IntN(gpus)
		args := []string{"gpu", "close", c.uuids[gpu], "--reason", "a fan"}
		if closed[gpu] {
			args = []string{"gpu", "open", c.uuids[gpu]}
		}
		_, err := c.gpuslot(args...)
		if err != nil {
			<-cut
			return gpu
		}
		closed[gpu] = !closed[gpu]
		select {
		case <-cut:
			return -1
		default:
		}
	}
}

// killAll ends the agent, control daemons, servers and jobs, all by force.
func (c *campaign) killAll() {
	c.stopAgent(syscall.SIGKILL)
	for _, j := range slices.Clone(c.jobs) {
		j.touch("the power failed")
	}
	c.waitFor("everything to have ended", func() bool {
		running := slices.DeleteFunc(c.processes(), func(p process) bool { return p.program == "condor_starter" })
		for _, p := range running {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		return len(running) == 0
	})
	for _, j := range slices.Clone(c.jobs) {
		c.kill(j, "the power failed")
	}
}
