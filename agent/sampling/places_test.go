package sampling

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// stuck puts pipes in the place of processes' cgroup files. To read one does not end before answer says what it reads.
func (n *fakeNode) stuck(t *testing.T, pids ...int) (answer func(pid int, cgroup string)) {
	t.Helper()
	left := map[int]bool{}
	answer = func(pid int, cgroup string) {
		t.Helper()
		if delete(left, pid); proctree.AnswerPipe(n.cgroup(pid), "0::"+cgroup+"\n") != nil {
			t.Errorf("process %d is not answered for", pid)
		}
	}
	for _, pid := range pids {
		left[pid] = true
		pipe := n.cgroup(pid) + ".pipe"
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Rename(pipe, n.cgroup(pid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for pid := range left {
			answer(pid, "/")
		}
	})
	return answer
}

func (n *fakeNode) cgroup(pid int) string {
	return filepath.Join(n.proc.Root, strconv.Itoa(pid), "cgroup")
}

// until takes samples until one shows it.
func (n *fakeNode) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(5 * time.Minute); ; {
		if n.sample(t); is() {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s did not come: %+v", what, n.loop.Last().Devices)
		}
	}
}

// TestSamplesDoNotWaitForCgroups: of many processes on one GPU the kernel does not say in which cgroups they are. Samples are
// taken all the same, and the other GPU's jobs are judged. Nobody is ended or held for what is not known, and
// it is seen: the status names the processes, and their GPU takes no new jobs.
func TestSamplesDoNotWaitForCgroups(t *testing.T) {
	n := newNode(t, 2)
	n.loop.Patience = time.Millisecond
	n.loop.looks.begin(n.clock)
	j, other := n.job(100, "slot1_1", uuid(0)), n.job(200, "slot1_2", uuid(1))
	n.toBeHeld[j.Starter], n.toBeHeld[other.Starter] = true, true
	all, pids := []gpu.DeviceProcess{uses(101, 6000)}, []int{101}
	for pid := 300; pid < 350; pid++ {
		n.process(pid, 1)
		all, pids = append(all, uses(pid, 100)), append(pids, pid)
	}
	answer := n.stuck(t, pids...)
	n.readings[0], n.readings[1] = reading(uuid(0), all...), reading(uuid(1), uses(201, 6000))
	n.until(t, "the finding", func() bool { return len(n.punished) > 0 && len(n.published) > unclearAfter })
	for _, f := range n.punished {
		if !f.Starter.Is(other.Starter) || f.Code != api.CodeOverBudget {
			t.Errorf("%+v", f)
		}
	}
	if len(n.ends)+len(n.kills) > 0 {
		t.Errorf("ended %v, killed %v", n.ends, n.kills)
	}
	for i, want := range []string{"it is not known whose process 101 of uid 1000 is", ""} {
		if why := n.loop.Blocked(n.node, uuid(i)); (why == "") != (want == "") || !strings.HasPrefix(why, want) {
			t.Errorf("GPU %d: %q", i, why)
		}
		if sees := n.loop.Sees(n.node, &n.node.Plan.GPUs[i], n.clock); sees != gpu.Known(true) {
			t.Errorf("GPU %d is seen: %+v", i, sees)
		}
	}
	names := n.loop.Uses(uuid(0)).Strangers
	if len(names) != len(pids) || slices.ContainsFunc(names, func(p api.StatusProcess) bool { return !p.Unknown }) ||
		n.loop.Unused(uuid(0), n.clock) {
		t.Errorf("the status has %+v", names)
	}
	n.punished = nil
	for _, pid := range pids {
		answer(pid, map[bool]string{true: "/user.slice/user-1000.slice/session-1.scope", false: "/system.slice/x"}[pid == 300])
	}
	n.until(t, "the user's own process", func() bool { return len(n.ends[uuid(0)]) > 0 })
	n.until(t, "the job", func() bool {
		return slices.ContainsFunc(n.punished, func(f rules.Finding) bool { return f.Starter.Is(j.Starter) })
	})
	if got := n.ends[uuid(0)]; slices.ContainsFunc(got, func(pid int) bool { return pid != 300 }) {
		t.Errorf("ended %v", got)
	}
	n.until(t, "the end of all questions", func() bool { return n.loop.Blocked(n.node, uuid(0)) == "" })
}

// TestShortLivedProcessesThatAreNotKnown: processes that leave before the kernel says whose they are, each after two
// samples, close their GPU to new jobs as one does that stays. After the last of them it opens again.
func TestShortLivedProcessesThatAreNotKnown(t *testing.T) {
	n := newNode(t, 2)
	n.loop.Patience = time.Millisecond
	for i := range unclearAfter + 1 {
		if why := n.loop.Blocked(n.node, uuid(0)); why != "" {
			t.Errorf("after %d samples: %s", i, why)
		}
		pid := 300 + i/2
		if i%2 == 0 {
			n.process(pid, 1)
			n.stuck(t, pid)
		}
		n.readings[0] = reading(uuid(0), uses(pid, 16000))
		n.sample(t)
	}
	if why := n.loop.Blocked(n.node, uuid(0)); !strings.HasPrefix(why, "it is not known whose process 302 of uid 1000 is") {
		t.Errorf("%q", why)
	}
	if why := n.loop.Blocked(n.node, uuid(1)); why != "" {
		t.Errorf("the other GPU: %s", why)
	}
	n.process(303, 1)
	n.stuck(t, 303)
	n.readings[0] = reading(uuid(0), uses(303, 16000))
	n.sample(t)
	n.readings[0] = reading(uuid(0))
	for i := range unclearAfter + 1 {
		if n.sample(t); !strings.HasPrefix(n.loop.Blocked(n.node, uuid(0)), "it is not known whose its last processes were") {
			t.Errorf("%d samples after: %q", i+1, n.loop.Blocked(n.node, uuid(0)))
		}
	}
	if n.sample(t); n.loop.Blocked(n.node, uuid(0)) != "" {
		t.Errorf("%q", n.loop.Blocked(n.node, uuid(0)))
	}
}

// TestSamplesDoNotWaitForUsers: nothing is done about processes of no job while the kernel does not say whether they are a user's
// own, and the sample does not wait.
func TestSamplesDoNotWaitForUsers(t *testing.T) {
	n := newNode(t, 2)
	for _, pid := range []int{300, 301} {
		const session = "/user.slice/user-1000.slice/session-1.scope"
		n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: 1000, Cgroup: session})
	}
	n.readings[0], n.readings[1] = reading(uuid(0), uses(300, 100)), reading(uuid(1), uses(301, 100))
	n.sample(t)
	if n.ends == nil {
		t.Fatal("they are not ended")
	}
	n.ends = nil
	n.loop.Patience = time.Millisecond // they are known to be no job's
	answer := n.stuck(t, 300)
	n.until(t, "the other GPU's", func() bool { return len(n.ends[uuid(1)]) > 0 })
	if got := n.ends[uuid(0)]; len(got) > 0 {
		t.Errorf("ended %v", got)
	}
	answer(300, "/user.slice/user-1000.slice/session-1.scope")
	n.until(t, "the answer", func() bool { return len(n.ends[uuid(0)]) > 0 })
}

// TestSamplesDoNotWaitForLeaves: of one job's process the kernel does not say whether it has left its cgroup. The job is not
// held for that, and another job's that has left is found. When it is answered, the job is held.
func TestSamplesDoNotWaitForLeaves(t *testing.T) {
	n := newNode(t, 2)
	n.node.CgroupLimits, n.limited[uuid(0)], n.limited[uuid(1)] = true, true, true
	j, other := n.job(100, "slot1_1", uuid(0)), n.job(200, "slot1_2", uuid(1))
	n.readings[0], n.readings[1] = reading(uuid(0), uses(101, 100)), reading(uuid(1), uses(201, 100))
	n.sample(t) // whose they are is known
	n.loop.Patience = time.Millisecond
	n.toBeHeld[j.Starter], n.toBeHeld[other.Starter] = true, true
	elsewhere := strings.Replace(proctree.CgroupOf("slot1_2"), ".scope", ".scope2", 1)
	n.proc.Add(proctree.Process{PID: 201, Parent: 200, Comm: "train", UID: 1000, Cgroup: elsewhere})
	answer := n.stuck(t, 101)
	n.until(t, "the one that left", func() bool { return len(n.punished) > 0 })
	for _, f := range n.punished {
		if !f.Starter.Is(other.Starter) || f.Code != api.CodeLeftCgroup {
			t.Errorf("%+v", f)
		}
	}
	answer(101, strings.Replace(proctree.CgroupOf("slot1_1"), ".scope", ".scope2", 1))
	n.until(t, "the answer", func() bool {
		return slices.ContainsFunc(n.punished, func(f rules.Finding) bool { return f.Starter.Is(j.Starter) })
	})
}
