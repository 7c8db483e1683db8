package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeCUDA is the CUDA side of a node: its clients attach to the fake daemons
// as real ones do, unless the node is out of order.
type fakeCUDA struct {
	ta *testAgent
	// beside: it does not attach. unlimited: no limit holds. hangs: cuInit does
	// not return. refuse: there is no client.
	beside, unlimited, hangs bool
	// hangsIn: it hangs when it has attached.
	hangsIn bool
	refuse  error
	// during is called while a client runs.
	during func()

	mu     sync.Mutex
	orders []cuda.Order
	alive  int
}

// mend lets limits hold from now on.
func (f *fakeCUDA) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlimited = false
}

type fakeClient struct {
	f     *fakeCUDA
	gpu   gpu.UUID
	tried chan struct{}
	r     cuda.Report
	in    bool
}

const (
	clientPID  = 777
	serverPID  = 7070
	nobodysUID = 65534
)

func (f *fakeCUDA) start(_ context.Context, o cuda.Order) (verify.Client, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.mu.Lock()
	f.orders = append(f.orders, o)
	f.alive++
	unlimited := f.unlimited
	f.mu.Unlock()
	c := &fakeClient{f: f, tried: make(chan struct{}), gpu: gpu.UUID(valueOf(o, "CUDA_VISIBLE_DEVICES"))}
	if f.during != nil {
		f.during()
	}
	c.r.In = cuda.StepInit
	if f.hangs && !f.hangsIn {
		return c, nil
	}
	if !f.beside {
		c.in = true
		f.ta.daemons.change(c.gpu, func(d *fakeDaemon) {
			d.servers = []mps.Server{{ID: process.ID{PID: serverPID, Started: 1}, UID: nobodysUID, Status: mps.Active, Clients: []int{clientPID}}}
		})
	}
	if f.hangs {
		c.r.In = cuda.StepBelow
		return c, nil
	}
	devices, version, free := 1, 12040, gpu.Bytes(1<<30)
	c.r = cuda.Report{Tried: true, CUDA: &version, Devices: &devices, Free: &free, Total: &free}
	for _, name := range []string{cuda.StepLoad, cuda.StepInit, cuda.StepCount, cuda.StepContext, cuda.StepInfo, cuda.StepBelow, cuda.StepFree} {
		c.r.Steps = append(c.r.Steps, cuda.Step{Name: name, Result: "CUDA_SUCCESS"})
	}
	above := cuda.Step{Name: cuda.StepAbove, Code: cuda.OutOfMemory, Result: "CUDA_ERROR_OUT_OF_MEMORY"}
	if unlimited || f.beside {
		above = cuda.Step{Name: cuda.StepAbove, Result: "CUDA_SUCCESS"}
	}
	c.r.Steps = append(c.r.Steps, above)
	close(c.tried)
	return c, nil
}

func (c *fakeClient) PID() int               { return clientPID }
func (c *fakeClient) Tried() <-chan struct{} { return c.tried }
func (c *fakeClient) Report() cuda.Report    { return c.r }

func (c *fakeClient) End() bool {
	if c.in {
		c.f.ta.daemons.change(c.gpu, func(d *fakeDaemon) { d.servers[0].Clients = nil })
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.alive--
	return true
}

func valueOf(o cuda.Order, name string) string {
	for _, e := range o.Environment {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v
		}
	}
	return ""
}

// verifying gives a test agent a CUDA side.
func verifying(t *testing.T, gpus int, text string) (*testAgent, *fakeCUDA) {
	t.Helper()
	ta := newTestAgent(t, gpus, text)
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslotd"})
	f := &fakeCUDA{ta: ta}
	ta.equip(f)
	return ta, f
}

func (ta *testAgent) equip(f *fakeCUDA) {
	ta.verifier.Start, ta.own, ta.verifier.Own = f.start, 0, 0
}

// verifyOne verifies GPU n, which must be tried.
func (ta *testAgent) verifyOne(n int) api.Verification {
	ta.t.Helper()
	found, err := ta.answers.verify(ta.t.Context(), string(uuid(n)))
	if err != nil || len(found) != 1 || found[0].Skipped != "" {
		ta.t.Fatalf("%+v, %v", found, err)
	}
	return found[0]
}

// nothingLeft: no booking, no access, no client.
func (ta *testAgent) nothingLeft(f *fakeCUDA) {
	ta.t.Helper()
	if all := ta.jobs.Running(); len(all) != 0 {
		ta.t.Errorf("booked: %+v", all)
	}
	if len(ta.access.in) != 0 {
		ta.t.Errorf("open: %v", ta.access.in)
	}
	if f.alive != 0 {
		ta.t.Errorf("%d clients live", f.alive)
	}
}

// TestVerify: what a client meets, and what is said of it.
func TestVerify(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*testAgent, *fakeCUDA)
		ok   bool
		says string
	}{
		{"all holds", func(*testAgent, *fakeCUDA) {}, true, "as nobody: an MPS client; of its 4608 MiB it got 1152 MiB, and for 4609 MiB CUDA_ERROR_OUT_OF_MEMORY"},
		{"no limit", func(_ *testAgent, f *fakeCUDA) { f.unlimited = true }, false, "4609 MiB were given to a client whose limit is 4608 MiB"},
		{"beside MPS", func(_ *testAgent, f *fakeCUDA) { f.beside = true }, false, "CUDA runs on it beside its control daemon"},
		{"no client", func(_ *testAgent, f *fakeCUDA) { f.refuse = errors.New("fork: operation not permitted") }, false, "fork: operation not permitted: see whether nobody may run"},
		{"hangs", func(_ *testAgent, f *fakeCUDA) { f.hangs = true }, false, "cuInit did not return within 30s: see its log"},
		{"another account's server", func(ta *testAgent, f *fakeCUDA) {
			f.hangs = true
			f.during = func() {
				ta.daemons.change(uuid(0), func(d *fakeDaemon) {
					d.servers = []mps.Server{{ID: process.ID{PID: 9}, UID: 1000, Clients: []int{55}}}
				})
			}
		}, false, "because MPS serves uid 1000 (server 9) until its clients [55] end"},
		{"the daemon hangs meanwhile", func(ta *testAgent, f *fakeCUDA) {
			f.during = func() { ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true }) }
		}, false, "it is not known whether its client attached: its control daemon: it is wedged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ta, f := verifying(t, 2, "")
				tt.do(ta, f)
				v := ta.verifyOne(0)
				if v.OK != tt.ok || !strings.Contains(v.Text, tt.says) || v.Driver != "550.163.01" {
					t.Errorf("%+v, want %q", v, tt.says)
				}
				ta.nothingLeft(f)
				// The GPU is open again, whatever came of it: nobody asked for more.
				if why := ta.reason(0); why != "" && !strings.Contains(why, "wedged") {
					t.Errorf("closed: %s", why)
				}
				if s := ta.status().GPUs; s[0].Verified == nil || s[0].Verified.OK != tt.ok || s[1].Verified != nil {
					t.Errorf("status: %+v, %+v", s[0].Verified, s[1].Verified)
				}
			})
		})
	}
}

// TestVerifyIsAJob: the client gets what the hook would give a job of the
// default size, and nothing else.
func TestVerifyIsAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 1, "")
		s := ta.proc.starter(100, "slot1_1")
		g := ta.grant(s, 1000, "alice", uuid(0), 4608)
		var want []string
		for k, v := range g.Defaults {
			want = append(want, k+"="+v)
		}
		for k, v := range g.Environment {
			want = append(want, k+"="+v)
		}
		slices.Sort(want)
		ta.proc.End(100)
		ta.sweeper.now()
		ta.verifyOne(0)
		if o := f.orders[0]; !slices.Equal(o.Environment, want) || o.Account == nil || o.Account.UID != nobodysUID || o.Below != 1152 || o.Above != 4609 {
			t.Errorf("order %+v, want the environment %q", o, want)
		}
	})
}

// TestVerifyHoldsTheGPU: nobody else gets it meanwhile, START says so, and
// everybody may have it afterwards.
func TestVerifyHoldsTheGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 2, "")
		during := 0
		f.during = func() {
			during++
			if !ta.access.has(uuid(0), nobodysUID) || !ta.jobs.Busy(uuid(0)) {
				t.Error("the client came before its booking")
			}
			for _, uid := range []uint32{1000, nobodysUID} { // the same account neither
				if r := ta.refuse(ta.proc.starter(100, "slot1_1"), uid, "alice", uuid(0), 4096); r.Code != api.CodeClosed || !strings.Contains(r.Reason, "being verified") {
					t.Errorf("refusal = %+v", r)
				}
			}
			if why := ta.reason(0); why != admission.BeingVerified {
				t.Errorf("START hears %q", why)
			}
			if why := ta.reason(1); why != "" {
				t.Errorf("the other GPU is closed: %s", why)
			}
		}
		begin := time.Now()
		ta.verifyOne(0)
		if during != 1 || time.Since(begin) < 2*time.Second {
			t.Errorf("%d clients, the first after %s", during, time.Since(begin))
		}
		ta.nothingLeft(f)
		f.during = nil
		ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
		found, err := ta.answers.verify(t.Context(), "0")
		if err != nil || found[0].Skipped != "jobs run on it: try again when they have ended" || len(f.orders) != 1 {
			t.Errorf("%+v, %v", found, err)
		}
		if all, err := ta.answers.verify(t.Context(), ""); err != nil || len(all) != 2 || all[0].Skipped == "" || !all[1].OK {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestVerifyGivesWay: a job that is admitted while START is being told stays.
func TestVerifyGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 1, "")
		done := make(chan []api.Verification)
		go func() {
			found, _ := ta.answers.verify(t.Context(), "0")
			done <- found
		}()
		synctest.Wait() // it waits for START to hear
		ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
		if found := <-done; !strings.Contains(found[0].Skipped, "a job came") || len(f.orders) != 0 {
			t.Errorf("%+v", found)
		}
		if len(ta.jobs.Running()) != 1 {
			t.Errorf("jobs: %+v", ta.jobs.Running())
		}
	})
}

// TestVerifyRefused: a GPU that no job would get is not tried.
func TestVerifyRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 2, "[gpu.\""+string(uuid(1))+"\"]\nmode = \"whole\"\n")
		ta.daemons.kill(uuid(0), false)
		for name, says := range map[string]string{"0": "is closed: its control daemon", "1": "it is not shared"} {
			found, err := ta.answers.verify(t.Context(), name)
			if err != nil || len(found) != 1 || !strings.Contains(found[0].Skipped, says) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
		if _, err := ta.answers.verify(t.Context(), "7"); err == nil {
			t.Error("there is no GPU 7")
		}
		ta.verifier.Start = nil
		if found, _ := ta.answers.verify(t.Context(), "0"); found[0].Skipped != verify.NoClients {
			t.Errorf("%+v", found)
		}
		if len(f.orders) != 0 || ta.status().GPUs[0].Verified != nil {
			t.Error("a client ran")
		}
	})
}

// TestVerifyUnderADeadAgent: the next one shuts the account out that the last
// one let in.
func TestVerifyUnderADeadAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 1, "")
		if err := ta.access.Admit(uuid(0), nobodysUID); err != nil {
			t.Fatal(err)
		}
		ta.restart()
		ta.equip(f)
		ta.sweeper.now()
		ta.nothingLeft(f)
		if why := ta.reason(0); why != "" {
			t.Errorf("closed: %s", why)
		}
	})
}

// TestVerifyEndsAHangingClient: one that is in leaves as an MPS client first,
// so that its end harms nobody.
func TestVerifyEndsAHangingClient(t *testing.T) {
	for in, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			ta, f := verifying(t, 1, "")
			f.hangs, f.hangsIn = true, in
			ended := 0
			ta.daemons.happens = func(what string) {
				if what == "end [777]" {
					ended++
				}
			}
			if v := ta.verifyOne(0); v.OK || !strings.Contains(v.Text, "did not return within 30s") || ended != want {
				t.Errorf("in %t: %+v, ended %d times", in, v, ended)
			}
			ta.nothingLeft(f)
		})
	}
}
