package sampling

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestRound: what a sample shows of a job reaches the rules, the keeper of control daemons and the
// readers. A job above its budget is acted on after the grace time.
func TestRound(t *testing.T) {
	n := newNode(t, 2)
	j := n.job(100, "slot1_1", uuid(0))
	n.readings[0] = reading(uuid(0), uses(101, 6000))
	n.sample(t)
	if len(n.punished) > 0 || n.ended > 0 {
		t.Errorf("within the grace time: %+v", n.punished)
	}
	n.clock = n.clock.Add(n.node.Config.Budgets.Grace)
	snap := n.sample(t)
	if len(n.punished) != 1 || n.punished[0].Starter != j.Starter || n.punished[0].Code != api.CodeOverBudget {
		t.Errorf("after it: %+v", n.punished)
	}
	if len(n.published) != 2 || n.published[1] != snap {
		t.Errorf("%d samples", len(n.published))
	}
	n.node.Plan.Observe = true
	if n.sample(t); n.ended != 1 {
		t.Errorf("on an observed node jobs that ended were looked for %d times", n.ended)
	}
}

// TestNoGraceForAJobToBeHeld: it breaks the next rule while its end is awaited.
func TestNoGraceForAJobToBeHeld(t *testing.T) {
	n := newNode(t, 1)
	j := n.job(100, "slot1_1", uuid(0))
	n.toBeHeld[j.Starter] = true
	n.readings[0] = reading(uuid(0), uses(101, 6000))
	if n.sample(t); len(n.punished) != 1 {
		t.Errorf("%+v", n.punished)
	}
}

// TestWhatCgroupsShow: where NVML does not report the memory of a job's processes, what the driver
// counts in its cgroup is judged; a process outside that cgroup breaks a rule of its own.
func TestWhatCgroupsShow(t *testing.T) {
	for name, tt := range map[string]struct {
		mib   int64
		limit bool
		code  int
	}{
		"the driver counts":            {-1, false, api.CodeOverBudget},
		"NVML reports":                 {100, false, 0},
		"outside, and limits in force": {100, true, api.CodeLeftCgroup},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			j := n.job(100, "slot1_1", uuid(0))
			n.toBeHeld[j.Starter] = true
			n.counted[j.Starter] = gpu.Known(gpu.Bytes(6000 << 20))
			n.node.CgroupLimits, n.limited[uuid(0)], n.outside[101] = true, tt.limit, true
			n.readings[0] = reading(uuid(0), uses(101, tt.mib))
			n.sample(t)
			if tt.code == 0 && len(n.punished) > 0 || tt.code != 0 && (len(n.punished) != 1 || n.punished[0].Code != tt.code) {
				t.Errorf("%+v", n.punished)
			}
			if tt.limit {
				n.node.CgroupLimits, n.punished = false, nil
				if n.sample(t); len(n.punished) > 0 {
					t.Errorf("without limits nothing is outside: %+v", n.punished)
				}
			}
		})
	}
}

// TestSwitchedOff: a job that switched off the controller of its limit is held, whatever its processes do.
func TestSwitchedOff(t *testing.T) {
	n := newNode(t, 1)
	j, other := n.job(100, "slot1_1", uuid(0)), n.job(200, "slot1_2", uuid(0))
	n.toBeHeld[j.Starter], n.toBeHeld[other.Starter] = true, true
	n.unbound = map[starter.Starter]bool{j.Starter: true}
	n.sample(t)
	if len(n.punished) != 1 || !n.punished[0].Starter.Is(j.Starter) || n.punished[0].Code != api.CodeLeftCgroup ||
		!strings.Contains(n.punished[0].Reason, "the job switched off the controller") {
		t.Errorf("%+v", n.punished)
	}
}

// TestHidesPipes: a process in a container without the pipe directory is told apart from one that
// merely dropped its environment.
func TestHidesPipes(t *testing.T) {
	n := newNode(t, 1)
	n.node.Config.Paths.Run = t.TempDir()
	dir := n.node.Config.Paths.PipeRoot() + "/" + string(uuid(0))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := func(pid, text string) {
		t.Helper()
		where := filepath.Join(n.proc.Root, pid)
		if err := os.MkdirAll(where, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(where, "mountinfo"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	j := n.job(100, "slot1_1", uuid(0))
	var all []gpu.DeviceProcess
	for _, pid := range []int{200, 201, 202, 203} {
		n.process(pid, 100)
		n.starters[pid] = j.Starter
		all = append(all, gpu.DeviceProcess{PID: pid})
	}
	mounts("self", "22 1 254:0 / / rw - ext4 /dev/vda rw\n")
	mounts("200", "22 1 254:0 / / rw - ext4 /dev/vda rw\n")
	mounts("201", "30 1 0:60 / / rw - overlay overlay rw\n")
	mounts("202", "30 1 0:60 / / rw - overlay overlay rw\n31 30 254:0 "+dir+" "+dir+" rw - ext4 /dev/vda rw\n")
	n.node.Config.Health.Unattached, n.toBeHeld[j.Starter] = config.EnforceHold, true
	n.readings[0] = reading(uuid(0), all...)
	n.sample(t)
	if len(n.punished) != 1 || !slices.Equal(n.punished[0].Blind, []int{201}) || n.punished[0].Pipes != dir {
		t.Errorf("%+v", n.punished)
	}
}

// TestLongMounts: a job has many processes beside MPS, each with a list of mounts of 1 MiB. Few of
// the lists are read, and once: all GPUs wait for that.
func TestLongMounts(t *testing.T) {
	n := newNode(t, 1)
	counted := &countedLooks{Processes: n.loop.Processes}
	n.loop.Processes = counted
	j := n.job(100, "slot1_1", uuid(0))
	line := "31 30 254:0 / /somewhere/in/the/job rw - ext4 /dev/vda rw\n"
	long := []byte("30 1 0:60 / / rw - overlay overlay rw\n" + strings.Repeat(line, 1<<20/len(line)-1))
	var all []gpu.DeviceProcess
	for pid := 200; pid < 320; pid++ {
		n.process(pid, 100)
		n.starters[pid] = j.Starter
		all = append(all, gpu.DeviceProcess{PID: pid, Graphics: pid%2 == 0})
		if err := os.WriteFile(filepath.Join(n.proc.Root, strconv.Itoa(pid), "mountinfo"), long, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(n.proc.Root, "self")
	if err := errors.Join(os.MkdirAll(own, 0o755), os.WriteFile(filepath.Join(own, "mountinfo"), long[:40], 0o644)); err != nil {
		t.Fatal(err)
	}
	n.readings[0] = reading(uuid(0), all...)
	for range 3 {
		n.sample(t)
	}
	if counted.looks != 0 {
		t.Errorf("%d lists of mounts were read of a job that broke no rule for longer than it may", counted.looks)
	}
	n.toBeHeld[j.Starter] = true
	for range 3 {
		n.sample(t)
	}
	if counted.looks != mostLooked || len(n.punished) != 3 {
		t.Errorf("%d lists of mounts were read, want %d; found %d times", counted.looks, mostLooked, len(n.punished))
	}
}

// TestSlowMounts: samples do not wait for lists of mounts that take long, and one look is under way at a time.
func TestSlowMounts(t *testing.T) {
	n := newNode(t, 1)
	slow := &slowLooks{Processes: n.loop.Processes, more: make(chan struct{})}
	n.loop.Processes, n.loop.Patience = slow, time.Millisecond
	for range 3 {
		if got := n.loop.hiding(map[int]string{200: "/x"}); len(got) > 0 {
			t.Errorf("%v", got)
		}
	}
	if began := slow.began.Load(); began != 1 {
		t.Errorf("%d looks have begun", began)
	}
	close(slow.more)
	n.loop.Patience = time.Minute
	for end := time.Now().Add(5 * time.Minute); !n.loop.hiding(map[int]string{200: "/x"})[200]; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no look begins after the slow one")
		}
	}
}

// slowLooks wait for the test.
type slowLooks struct {
	Processes
	began atomic.Int64
	more  chan struct{}
}

func (s *slowLooks) Hiding(_ map[int]string) map[int]bool {
	s.began.Add(1)
	<-s.more
	return map[int]bool{200: true}
}

// countedLooks counts the processes whose lists of mounts are read.
type countedLooks struct {
	Processes
	looks int
}

func (c *countedLooks) Hiding(dirs map[int]string) map[int]bool {
	c.looks += len(dirs)
	return c.Processes.Hiding(dirs)
}

// TestNewServer: the agent's loop is woken for an MPS server that no health check has listed yet.
func TestNewServer(t *testing.T) {
	n := newNode(t, 1)
	daemon := n.node.Daemons[uuid(0)].Checked.Process()
	n.process(60, 1)
	n.readings[0] = reading(uuid(0), uses(60, 28))
	if n.sample(t); n.woken > 0 {
		t.Error("woken for a process that is no server")
	}
	n.process(60, daemon.PID)
	n.proc.Add(proctree.Process{PID: daemon.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: daemon.Started})
	if n.sample(t); n.woken != 1 {
		t.Errorf("woken %d times for a new server", n.woken)
	}
	listed := n.node.Daemons[uuid(0)]
	listed.Checked.States = []mps.Server{{ID: process.ID{PID: 60, Started: proctree.StartOf(60)}}}
	n.node.Daemons[uuid(0)] = listed
	if n.sample(t); n.woken != 1 {
		t.Errorf("woken %d times; the server is listed", n.woken)
	}
}

// TestEventsOfContention: the history has it when jobs slow each other down no longer.
func TestEventsOfContention(t *testing.T) {
	n := newNode(t, 1)
	n.loop.contended[uuid(0)] = true // up to the last sample
	n.sample(t)
	n.sample(t)
	if len(n.events) != 1 || n.events[0].Kind != history.EventContention || !strings.Contains(n.events[0].Text, "no longer") {
		t.Errorf("%+v", n.events)
	}
}

// TestRun: samples are taken at the pace of the configuration in force, until the context ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.loop.Run(ctx); close(done) }()
		time.Sleep(3*n.node.Config.Usage.Interval + n.node.Config.Usage.Interval/2)
		synctest.Wait()
		if got := len(n.published); got != 4 {
			t.Errorf("%d samples in three intervals and a half", got)
		}
		if sees := n.loop.Sees(n.node, &n.node.Plan.GPUs[0], n.clock); sees != gpu.Known(true) {
			t.Errorf("whether samples show the GPU: %+v", sees)
		}
		cancel()
		<-done
	})
}

// TestNewPace: an interval that is longer since the configuration was read again makes no sample stale.
func TestNewPace(t *testing.T) {
	n := newNode(t, 1)
	n.sample(t)
	config := *n.node.Config
	config.Usage.Interval = 10 * time.Second
	n.node.Config = &config
	n.readings[0] = gpu.Reading{GPU: uuid(0), Err: errHangs}
	n.clock = n.clock.Add(20 * time.Second)
	if snap := n.sample(t); len(snap.Devices) != 1 {
		t.Errorf("the last reading is two intervals old: %+v", snap.Devices)
	}
}

// TestNothingSamples: without a source there are no samples, and what rests on them is not known.
func TestNothingSamples(t *testing.T) {
	n := newNode(t, 1)
	n.loop.Source = nil
	l := New(n.loop.Options)
	l.Run(t.Context())
	l.Watch(t.Context())
	g := &n.node.Plan.GPUs[0]
	if l.Last() == nil || l.Fresh(n.clock) || l.Unused(uuid(0), n.clock) || l.Enforces(n.node, uuid(0)) {
		t.Error("something is known")
	}
	if l.Sees(n.node, g, n.clock).Known || l.Unseen(n.node, uuid(0), n.clock) != "" || l.JobUses(n.clock) != nil {
		t.Error("something is known of a job")
	}
	if u := l.Uses(uuid(0)); u.MiB != nil || u.SM != nil || len(u.Strangers) > 0 {
		t.Errorf("%+v", u)
	}
}

// TestClientsOutsideOfJobs: MPS clients that users run in sessions and services of their own end.
// Those of jobs, of root and of containers do not, nor does anything on a GPU that is not shared.
func TestClientsOutsideOfJobs(t *testing.T) {
	n := newNode(t, 2)
	n.node.Plan.GPUs[1].Mode = config.ModeWhole
	n.job(100, "slot1_1", uuid(0))
	const manager = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service"
	for pid, c := range map[int]struct {
		cgroup string
		uid    uint32
	}{300: {manager, 1000}, 301: {manager, 0}, 302: {"/system.slice/docker-1.scope", 1000}, 303: {manager, 1000}} {
		n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: c.uid, Cgroup: c.cgroup})
	}
	beside := uses(303, 100)
	beside.MPSClient = false
	n.readings[0] = reading(uuid(0), uses(101, 100), uses(300, 100), uses(301, 100), uses(302, 100), beside)
	n.readings[1] = reading(uuid(1), uses(300, 100))
	n.sample(t)
	if want := (map[gpu.UUID][]int{uuid(0): {300}}); !reflect.DeepEqual(n.ends, want) {
		t.Errorf("ended: %v, want %v", n.ends, want)
	}
}

// TestComputesOutsideOfJobs: on shared GPUs processes that users run outside of jobs are killed, also an MPS server
// of their own. Clients of gpuslot's control daemon leave through it, while one is there. Processes of jobs, of root
// and of containers stay, and so does a display.
func TestComputesOutsideOfJobs(t *testing.T) {
	const manager = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service"
	for _, tt := range []struct {
		name         string
		mode         config.Mode
		served       bool
		ended, kills []int
	}{
		{"time slices", config.ModeTimeSlice, false, nil, []int{300, 301}},
		{"time slices beside a control daemon", config.ModeTimeSlice, true, []int{301}, []int{300}},
		{"MPS", config.ModeMPS, true, []int{301}, []int{300}},
		{"a whole GPU", config.ModeWhole, false, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, 1)
			n.node.Plan.GPUs[0].Mode = tt.mode
			if !tt.served {
				delete(n.node.Daemons, uuid(0))
			}
			n.job(100, "slot1_1", uuid(0))
			for pid, c := range map[int]struct {
				cgroup string
				uid    uint32
			}{
				300: {manager, 1000}, 301: {"/system.slice/cron.service", 1000}, 302: {manager, 1000},
				303: {manager, 0}, 304: {"/system.slice/docker-1.scope", 1000},
			} {
				n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: c.uid, Cgroup: c.cgroup})
			}
			var all []gpu.DeviceProcess
			for _, pid := range []int{101, 300, 301, 302, 303, 304} {
				p := uses(pid, 100)
				p.MPSClient, p.Graphics = pid == 301, pid == 302
				all = append(all, p)
			}
			n.readings[0] = reading(uuid(0), all...)
			n.sample(t)
			if got := n.ends[uuid(0)]; !slices.Equal(got, tt.ended) {
				t.Errorf("ended: %v, want %v", got, tt.ended)
			}
			if got := n.kills[uuid(0)]; !slices.Equal(got, tt.kills) {
				t.Errorf("killed: %v, want %v", got, tt.kills)
			}
		})
	}
}

// TestComputesUnanswered: so is one that the kernel does not answer (process.ErrHeld), or that is not read because of
// others of its account. So leaves the client of a control daemon. What runs elsewhere may be a job's.
func TestComputesUnanswered(t *testing.T) {
	const manager = "/user.slice/user-4000.slice/user@4000.service/app.slice/x.service"
	n := newNode(t, 1)
	var all []gpu.DeviceProcess
	for pid, cgroup := range map[int]string{300: manager, 301: manager, 302: "/system.slice/docker-1.scope"} {
		n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: 4000, Cgroup: cgroup})
		n.proc.Hold(pid, "stat")
		p := uses(pid, 100)
		p.MPSClient = pid == 301
		all = append(all, p)
	}
	n.readings[0] = reading(uuid(0), all...)
	n.sample(t)
	if !slices.Equal(n.outsideKills, []int{300}) || !slices.Equal(n.ends[uuid(0)], []int{301}) {
		t.Errorf("killed: %v; ended: %v", n.outsideKills, n.ends)
	}
}
