package verify

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// attemptWith is an attempt in which all holds, with one change.
func attemptWith(change func(*attempt)) attempt {
	one := 1
	t := attempt{gpu: testGPU, who: persona{name: "alice", uid: 1000}, limit: 4096, pid: clientPID, patience: 30 * time.Second,
		order: cuda.Order{Below: 1024, Above: 4097}, report: cuda.Report{Devices: &one}}
	t.servers = []mps.Server{{ID: process.ID{PID: 70}, UID: 1000, Clients: []int{clientPID}}}
	t.report.Steps = []cuda.Step{{Name: cuda.StepBelow, Milliseconds: 3}, {Name: cuda.StepAbove, Code: cuda.OutOfMemory, Result: "OOM"}}
	change(&t)
	return t
}

// TestWrong: each thing that does not hold has its own words.
func TestWrong(t *testing.T) {
	step := func(code int) func(*attempt) {
		return func(a *attempt) { a.report.Steps[0].Code, a.report.Steps[0].Result = code, "bad" }
	}
	busy := &mps.Error{Fault: mps.Busy, Err: errors.New("it is busy")}
	for name, c := range map[string]struct {
		change func(*attempt)
		want   string
	}{
		"all holds":       {func(*attempt) {}, ""},
		"stuck":           {func(a *attempt) { a.stuck, a.overdue = true, true }, "its client (pid 777) waits in the driver"},
		"no step":         {func(a *attempt) { a.report.Steps, a.report.Ended = nil, "exit status 3" }, "its client ended (exit status 3) in an unknown step"},
		"ended in a step": {func(a *attempt) { a.report.Steps, a.report.In = nil, "cuInit" }, "its client ended () in cuInit"},
		"two devices":     {func(a *attempt) { *a.report.Devices = 2 }, "its client sees other GPUs"},
		"no count":        {func(a *attempt) { a.report.Devices = nil }, "its client sees other GPUs"},
		"not listed":      {func(a *attempt) { a.listErr = busy }, "it is not known whether its client attached"},
		"beside":          {func(a *attempt) { a.pid++ }, "CUDA runs on it beside its control daemon"},
		"no limit":        {func(a *attempt) { a.report.Steps[1].Code = cuda.Success }, "4097 MiB were given"},
		"another error": {func(a *attempt) { a.report.Steps[1].Code = cuda.Unknown },
			cuda.StepAbove + " gave OOM instead of CUDA_ERROR_OUT_OF_MEMORY: see its log"},
		"its text": {func(a *attempt) { step(cuda.Unknown)(a); a.report.Steps[0].Text = "why" },
			cuda.StepBelow + " gave bad: why; see its log"},
		"no library":     {step(cuda.NotLoaded), cuda.StepBelow + " gave bad: : install the driver's CUDA library"},
		"no room":        {step(cuda.OutOfMemory), cuda.StepBelow + " gave bad: a context and 1024 MiB do not fit into 4096 MiB"},
		"unavailable":    {step(cuda.DeviceUnavailable), cuda.StepBelow + " gave bad: it is in an exclusive compute mode"},
		"no device":      {step(cuda.NoDevice), cuda.StepBelow + " gave bad: see whether nvidia-smi lists it"},
		"not permitted":  {step(cuda.NotPermitted), cuda.StepBelow + " gave bad: its control daemon does not serve alice"},
		"no connection":  {step(cuda.MPSConnectionFailed), cuda.StepBelow + " gave bad: its MPS server does not start or cannot be reached by alice"},
		"not ready":      {step(cuda.MPSServerNotReady), cuda.StepBelow + " gave bad: its MPS server recovers"},
		"clients":        {step(cuda.MPSMaxClientsReached), cuda.StepBelow + " gave bad: its MPS server has no room"},
		"another result": {step(cuda.MPSRPCFailure), cuda.StepBelow + " gave bad: see its log: journalctl -u gpuslot-mps@" + string(testGPU)},
		"hung":           {func(a *attempt) { a.overdue = true }, "an unknown step did not return within 30s: see its log"},
		"hung and unknown": {func(a *attempt) { a.overdue, a.servers, a.listErr = true, nil, busy },
			"an unknown step did not return within 30s; " + mps.Reason(busy)},
		"another's server": {func(a *attempt) { a.overdue, a.servers[0].UID = true, 1001 },
			"an unknown step did not return within 30s, because MPS serves uid 1001 (server 70) until its clients [777] end"},
		"another's idle server": {func(a *attempt) { a.overdue, a.servers[0].UID, a.servers[0].Clients = true, 1001, nil },
			"an unknown step did not return within 30s: see its log"},
	} {
		if got := attemptWith(c.change).wrong(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	v := attemptWith(func(*attempt) {}).verdict(time.Unix(1, 0))
	if !v.OK || len(v.Steps) != 2 || v.Steps[0].Milliseconds != 3 || !strings.HasSuffix(v.Text, "for 4097 MiB OOM") {
		t.Errorf("%+v", v)
	}
}

// TestOrderOf: the client gets what the grant has, over its defaults, and asks for at least something.
func TestOrderOf(t *testing.T) {
	for _, defaults := range []map[string]string{nil, {"A": "default", "B": "2"}} {
		o := orderOf(&plan.GPU{DefaultRequest: 3}, persona{}, &api.Grant{Defaults: defaults, Environment: map[string]string{"A": "1"}})
		if o.Below != 1 || o.Above != 4 || o.Environment[0] != "A=1" || len(o.Environment) != max(len(defaults), 1) || len(defaults) == 1 {
			t.Errorf("%+v", o)
		}
	}
}

// busyDaemon is busy for some questions.
type busyDaemon struct {
	*node
	busy, asked int
}

func (d *busyDaemon) Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error) {
	if d.asked++; d.asked <= d.busy {
		return nil, &mps.Error{Fault: mps.Busy, Err: errors.New("busy")}
	}
	return d.node.Servers(ctx, u)
}

// TestBusyDaemon: a control daemon that is busy is asked again, three times in all.
func TestBusyDaemon(t *testing.T) {
	for busy, asked := range []int{1, 2, 3, 3} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			d := &busyDaemon{node: n, busy: busy}
			n.Verifier.Servers = d
			begin := time.Now()
			if r := n.GPU(t.Context(), testGPU); r.OK != (busy < 3) || d.asked != asked || time.Since(begin) < time.Duration(busy)*300*time.Millisecond {
				t.Errorf("busy %d times: asked %d times, %+v", busy, d.asked, r)
			}
		})
	}
}

// stuckClient cannot be killed.
type stuckClient struct{ client }

func (stuckClient) End() bool { return false }

// TestStuckClient: a client that cannot be killed is the verdict.
func TestStuckClient(t *testing.T) {
	n := newNode(t)
	n.open = false
	n.Start = func(ctx context.Context, o cuda.Order) (Client, error) {
		c, err := n.start(ctx, o)
		return stuckClient{c.(client)}, err
	}
	if r := n.GPU(t.Context(), testGPU); r.OK || !strings.Contains(r.Text, "cannot be killed") {
		t.Errorf("%+v", r)
	}
}

// TestEndOfTheAgent: a verification that the agent's end cuts off, or that waits for another's, is none.
func TestEndOfTheAgent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := newNode(t)
	n.open, n.hangs = false, true
	n.Start = func(c context.Context, o cuda.Order) (Client, error) { cancel(); return n.start(c, o) }
	if r := n.GPU(ctx, testGPU); r.Skipped != errEnding.Error() || n.Last(testGPU) != nil || n.ended != 1 || n.reserved != 0 {
		t.Errorf("%+v", r)
	}
	n.turn <- struct{}{}
	if r := n.GPU(ctx, testGPU); r.Skipped != errEnding.Error() {
		t.Errorf("while another runs: %+v", r)
	}
	<-n.turn
	n.first, n.orders = true, nil
	n.Due(ctx)
	n.Run(ctx)
	if len(n.orders) > 0 || len(n.retry) > 0 {
		t.Errorf("after the end: %v, %v", n.orders, n.retry)
	}
}

// TestRun: what cannot be verified waits for its pause, and then is, without anybody's question.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := newNode(t)
		n.first, n.refusal = true, api.Refuse(api.CodeClosed, "a job came")
		ended := make(chan struct{})
		go func() { n.Run(ctx); close(ended) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if r := n.retry[testGPU]; r.why != "a job came" || r.failures != 1 {
			t.Errorf("%+v", r)
		}
		n.refusals.Lock()
		n.refusal = nil
		n.refusals.Unlock()
		time.Sleep(time.Minute)
		if synctest.Wait(); n.Missing(testGPU) != "" || len(n.orders) != 1 {
			t.Errorf("missing %q after %d clients", n.Missing(testGPU), len(n.orders))
		}
		cancel()
		<-ended
	})
}

// TestAccountOfAVerification: the one whose jobs the GPU serves; its name is in the database of accounts.
func TestAccountOfAVerification(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	v := New(Options{})
	g := &plan.GPU{Tenancy: plan.Tenancy{Policy: config.TenancyCommon, User: me.Username}}
	who, err := v.as(t.Context(), g)
	if err != nil || who.name != me.Username || int(who.uid) != os.Getuid() || who.change == nil || int(who.change.GID) != os.Getgid() {
		t.Errorf("%+v, %v", who, err)
	}
	g.Tenancy.User = "no-such-account-7"
	if who, err := v.as(t.Context(), g); err == nil {
		t.Errorf("%+v", who)
	}
	if who, err = v.as(t.Context(), &plan.GPU{}); err != nil || who.name != Account && who.name != nobodyAccount || who.uid == 0 {
		t.Errorf("any account: %+v, %v", who, err)
	}
}

// TestFileThatDoesNotRead: no file is no error, another text is renamed.
func TestFileThatDoesNotRead(t *testing.T) {
	v := newNode(t).Verifier
	if err := v.Read(); err != nil {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(v.File, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.Read(); err == nil || len(v.by) > 0 {
		t.Errorf("%v, %v", err, v.by)
	}
	if _, err := os.Stat(v.File); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
