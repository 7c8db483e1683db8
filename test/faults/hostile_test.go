package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
)

// hostile is one thing that a job may try. What holds against it today is what
// do asserts: stopped, detected, or neither.
type hostile struct {
	name string
	do   func(c *campaign)
}

// TestHostileJobs: what a job can do to its neighbours and to the node, and
// what becomes of it. Each starts with two neighbours of another account's GPU
// and two of its own, and ends with all of them well.
func TestHostileJobs(t *testing.T) {
	if elsewhere(t) {
		return
	}
	c := newCampaign(newNode(t, "550.163.01", ""), 1)
	defer c.clear()
	c.guarded("start", func() {
		c.settle("all GPUs to open", c.allOpen)
		// A server that is being tried holds its GPU, as a job's would.
		c.settle("the trials of servers", func(st *api.Status) bool {
			return !slices.ContainsFunc(st.GPUs, func(g api.StatusGPU) bool { return !strings.Contains(g.Server, "last proven at") })
		})
	})
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			c.now = &row{outcomes: map[string]int{}}
			c.guarded(h.name, func() {
				for gpu := range 2 {
					c.neighbours(gpu)
				}
				c.begin = time.Now()
				h.do(c)
				c.dismiss()
				c.settle("all GPUs to be open again", c.allOpen)
			})
			if c.found != nil {
				t.Errorf("does not hold: %s\n%s", c.found.rule, c.found.text)
				c.found = nil
			}
		})
	}
}

// neighbours are two jobs each; GPU 0's account is accounts[0], GPU 1's
// accounts[1].
func (c *campaign) neighbours(gpu int) {
	c.bury()
	for len(c.on(gpu)) < 2 {
		j, why := c.start(request{gpu: gpu, uid: accounts[gpu], budget: 2048, processes: []string{idle(512)}})
		if j == nil {
			c.fail(settles, "a neighbour is refused: "+why)
		}
		c.watched = append(c.watched, j)
		c.waitFor("the neighbour to work", func() bool { return strings.Contains(j.output(), "load 20") })
	}
}

// attack starts the hostile job on GPU 0.
func (c *campaign) attack(forged []string, processes ...string) *job {
	j, why := c.start(request{gpu: 0, uid: accounts[0], budget: 2048, processes: processes, forged: forged})
	if j == nil {
		c.fail(settles, "the hostile job is refused: "+why)
	}
	j.touch("hostile")
	return j
}

// says waits for the job's own words.
func (c *campaign) says(j *job, what string) {
	c.t.Helper()
	c.waitFor(fmt.Sprintf("%s to say %q", j, what), func() bool { return strings.Contains(j.output(), what) })
}

// held waits until the job is held for a reason with these words, and is gone.
func (c *campaign) heldFor(j *job, words string) {
	c.settle("the job to be held: "+words, func(*api.Status) bool { return j.Over() && strings.Contains(j.holdReason(), words) })
}

var hostiles = []hostile{
	{"no pipe directory beside neighbours: stopped by the compute mode", func(c *campaign) {
		j := c.attack([]string{"CUDA_MPS_PIPE_DIRECTORY=/nonexistent"}, idle(512))
		c.says(j, "error 46")
	}},
	{"no pipe directory on an idle GPU: runs without a limit, held by the policy", func(c *campaign) {
		// The server that the agent tries is gone again: then nothing holds the GPU.
		c.settle("GPU 2 to have no server", func(st *api.Status) bool {
			g := c.gpuOf(st, 2)
			return len(g.Servers) == 0 && strings.Contains(g.Server, "last proven") && c.server(2) == 0
		})
		j, _ := c.start(request{gpu: 2, uid: accounts[0], budget: 2048, forged: []string{"CUDA_MPS_PIPE_DIRECTORY=/nonexistent"}, processes: []string{idle(512)}})
		j.touch("hostile")
		c.says(j, "load 20")
		c.heldFor(j, "without its control daemon")
	}},
	{"a higher limit of its own: the daemon's stands, the watch holds it", func(c *campaign) {
		j := c.attack([]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=90G"}, "alloc 4096 until eof")
		c.heldFor(j, "ask for request_vram")
	}},
	{"a limit for a GPU that it does not see: no limit is left, the watch holds it", func(c *campaign) {
		j := c.attack([]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=GPU-00000000-0000-0000-0000-000000000000=1G"}, "alloc 8192 until eof")
		c.heldFor(j, "ask for request_vram")
	}},
	{"the first thread ends, another computes on: the watch holds it", func(c *campaign) {
		j := c.attack([]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=90G"}, "thread alloc 4096 until eof")
		c.heldFor(j, "ask for request_vram")
	}},
	{"huge allocation: refused by its own limit", func(c *campaign) {
		j := c.attack(nil, "go on alloc 60000 until eof")
		c.says(j, "error 2 ")
	}},
	{"huge managed allocation: neither stopped nor seen", func(c *campaign) {
		j := c.attack(nil, "alloc 100 managed 100000 until eof")
		c.says(j, "managed 100000 MiB: ok")
		c.settle("the job to be within its budget by what NVML tells", func(st *api.Status) bool {
			for _, s := range c.gpuOf(st, 0).Jobs {
				if s.ID == j.Job {
					return s.UseMiB != nil && *s.UseMiB < s.BudgetMiB && s.Hold == ""
				}
			}
			return false
		})
		c.finish(j)
	}},
	{"ended processes whose /dev/nvidia-uvm is kept: the watch holds it", func(c *campaign) {
		// Workers of a living process have its file, too: they keep nothing.
		worker, why := c.start(request{gpu: 0, uid: accounts[0], budget: 2048, processes: []string{"alloc 512 keep all until eof"}})
		if worker == nil {
			c.fail(settles, why)
		}
		c.watched = append(c.watched, worker)
		c.says(worker, "keep all: ok")
		const keeps = "alloc 1000 keep uvm"
		j := c.attack(nil, keeps, keeps, keeps, keeps, keeps, "until eof")
		c.heldFor(j, "keeps /dev/nvidia-uvm open")
		c.settle("what was kept to be free", func(st *api.Status) bool { return c.gpuOf(st, 0).UnlistedMiB == 0 })
		if why := worker.holdReason(); why != "" {
			c.fail(settles, "the job with a worker is held: "+why)
		}
		c.finish(worker)
	}},
	{"another account's GPU: its pipe directory is closed to it", func(c *campaign) {
		j := c.attack([]string{"CUDA_MPS_PIPE_DIRECTORY=" + c.pipe(1), "CUDA_VISIBLE_DEVICES=" + c.uuids[1]}, idle(512))
		c.says(j, "error 46") // taken for a job without MPS, and the GPU is exclusive
		if out, err := c.control(1, accounts[0], "get_server_list"); err == nil {
			c.fail(settles, "the other account's control daemon answers: "+out)
		}
	}},
	{"another GPU of its own account: not stopped", func(c *campaign) {
		other, why := c.start(request{gpu: 3, uid: accounts[0], budget: 2048, processes: []string{idle(512)}})
		if other == nil {
			c.fail(settles, why)
		}
		c.watched = append(c.watched, other)
		c.says(other, "load 20")
		j := c.attack([]string{"CUDA_MPS_PIPE_DIRECTORY=" + c.pipe(3), "CUDA_VISIBLE_DEVICES=" + c.uuids[3]}, idle(512))
		c.says(j, "load 20")
		c.finish(j)
		c.finish(other)
	}},
	{"rubbish and silence on the agent's socket: others are answered", agentFlooded},
	{"silence on the control daemon's socket: the GPU closes while it lasts", daemonSilent},
	{"rubbish on the control daemon's socket: the same daemon serves on", daemonMumbled},
	{"rubbish in the control daemon's log: the GPU closes until its daemon is started anew", logFilled},
	{"sixty clients: held", func(c *campaign) {
		words := make([]string, 60)
		for i := range words {
			words[i] = "go on context until eof"
		}
		j := c.attack(nil, words...)
		c.settle("the job to be held", func(*api.Status) bool { return j.holdReason() != "" && j.Over() })
		c.t.Logf("held: %s", j.holdReason())
	}},
}

// as runs do with another effective uid, which unix sockets and files see.
func as(uid uint32, do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	_, _, _ = syscall.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same)
	defer syscall.RawSyscall(unix.SYS_SETRESUID, same, 0, same)
	do()
}

func agentFlooded(c *campaign) {
	var silent []net.Conn
	defer func() {
		for _, s := range silent {
			s.Close()
		}
	}()
	rubbish := []string{"", "\x00\xff\n", "{", "[[[[\n", strings.Repeat("x", api.MaxRequest+1), `{"v":1,"op":"status"}` + "\n", `{"v":1,"op":"prepare","job":{}}` + "\n"}
	for i := range 300 {
		as(accounts[0], func() {
			conn, err := net.Dial("unix", c.socket())
			if err != nil {
				return
			}
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write([]byte(rubbish[i%len(rubbish)]))
			silent = append(silent, conn)
		})
	}
	j, why := c.start(request{gpu: 1, uid: accounts[1], budget: 2048, processes: []string{idle(512)}})
	if j == nil {
		c.fail(agentAnswers, "with 300 connections of another account a job is refused: "+why)
	}
	c.watched = append(c.watched, j)
	c.settle("the agent to answer", c.allOpen)
	c.finish(j)
}

// daemonSilent keeps the daemon's only connection, as an idle command line.
func daemonSilent(c *campaign) {
	cmd := exec.Command(c.path("sim/bin/nvidia-cuda-mps-control"))
	cmd.Env = append(c.vars(), "CUDA_MPS_PIPE_DIRECTORY="+c.pipe(0))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: accounts[0], Gid: accounts[0]}, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	c.quiet = true // the test's own questions would wait, too
	defer func() { c.quiet = false }()
	c.settle("GPU 0 to close, and no other", func(st *api.Status) bool {
		return !c.gpuOf(st, 0).Accept && c.gpuOf(st, 1).Accept && c.gpuOf(st, 2).Accept && c.gpuOf(st, 3).Accept
	})
}

// daemonMumbled speaks another language to the control daemon, again and again.
func daemonMumbled(c *campaign) {
	pid := c.daemonPID(0)
	as(accounts[0], func() {
		for range 50 {
			conn, err := net.Dial("unixpacket", filepath.Join(c.pipe(0), "control"))
			if err != nil {
				c.t.Logf("not open to the job: %v", err)
				return
			}
			_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = conn.Write([]byte(strings.Repeat("\x00rubbish\xff", 100)))
			conn.Close()
		}
	})
	c.settle("the same control daemon to serve", func(st *api.Status) bool {
		g := c.gpuOf(st, 0)
		return g.Accept && g.DaemonPID == pid
	})
}

// logFilled writes more than the pipe holds, as fast as it goes.
func logFilled(c *campaign) {
	as(accounts[0], func() {
		f, err := os.OpenFile(filepath.Join(c.pipe(0), "log"), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			c.t.Logf("not open to the job: %v", err)
			return
		}
		defer f.Close()
		_ = f.SetWriteDeadline(time.Now().Add(2 * time.Second))
		n, err := f.Write(make([]byte, 1<<20))
		c.t.Logf("%d bytes of rubbish went in: %v", n, err)
	})
	c.quiet = true // nobody gets an answer from it
	defer func() { c.quiet = false }()
	c.settle("GPU 0 to close, and no other", func(st *api.Status) bool {
		return !c.gpuOf(st, 0).Accept && c.gpuOf(st, 1).Accept && c.gpuOf(st, 2).Accept && c.gpuOf(st, 3).Accept
	})
	// What the reason asks for: the jobs end, then the daemon is started anew.
	for _, j := range c.on(0) {
		c.finish(j)
	}
	_ = syscall.Kill(c.daemonPID(0), syscall.SIGKILL)
}
