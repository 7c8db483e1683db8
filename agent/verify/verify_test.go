package verify

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
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

const (
	testGPU   gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"
	clientPID int      = 777
)

// node has one shared GPU, and a CUDA client that behaves as the fields say.
type node struct {
	*Verifier
	plan   plan.Plan
	first  bool
	daemon process.ID

	open, well, busy bool
	unknown          string
	refusals         sync.Mutex // around refusal, where Run is another goroutine
	refusal          *api.Refusal
	reserved         int
	changed          int

	// above is the result of the step above the limit, hangs that no step returns.
	above              int
	hangs, beside      bool
	refuse             error
	orders             []cuda.Order
	ended, endedByMPS  int
	startedWhileClosed bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{open: true, well: true, above: cuda.OutOfMemory, daemon: process.ID{PID: 5, Started: 5}}
	n.plan = plan.Plan{Driver: "550", GPUs: []plan.GPU{{
		UUID: testGPU, Mode: config.ModeMPS, Shares: 4, DefaultRequest: 4096, LargestRequest: 8192,
		Tenancy: plan.Tenancy{Policy: config.TenancyOneAtATime},
	}}}
	n.Verifier = New(Options{
		Start: n.start, Admission: n, Jobs: n, Servers: n, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		File: filepath.Join(t.TempDir(), "verified.json"), Own: 1000, Changed: func() { n.changed++ },
		Node: func() Node {
			return Node{
				Plan: &n.plan, First: n.first, Deadline: time.Second,
				Daemon: func(gpu.UUID) process.ID { return n.daemon },
			}
		},
	})
	return n
}

func (n *node) Open(*plan.GPU) bool { return n.open }
func (n *node) Well(*plan.GPU) bool { return n.well }
func (n *node) Busy(gpu.UUID) bool  { return n.busy }
func (n *node) Unknown() string     { return n.unknown }

func (n *node) Reserve(*plan.GPU, uint32) (*api.Grant, func(), *api.Refusal) {
	n.refusals.Lock()
	defer n.refusals.Unlock()
	if n.refusal != nil {
		return nil, nil, n.refusal
	}
	n.reserved++
	return &api.Grant{Environment: map[string]string{"A": "1"}}, func() { n.reserved-- }, nil
}

func (n *node) Servers(context.Context, gpu.UUID) ([]mps.Server, error) {
	if n.beside {
		return nil, nil
	}
	return []mps.Server{{ID: process.ID{PID: 70}, UID: 1000, Clients: []int{clientPID}}}, nil
}

func (n *node) EndClient(context.Context, gpu.UUID, int) { n.endedByMPS++ }

// client is a CUDA client.
type client struct {
	n     *node
	tried chan struct{}
	r     cuda.Report
}

func (c client) PID() int               { return clientPID }
func (c client) Tried() <-chan struct{} { return c.tried }
func (c client) Report() cuda.Report    { return c.r }
func (c client) End() bool              { c.n.ended++; return true }

func (n *node) start(_ context.Context, o cuda.Order) (Client, error) {
	if n.refuse != nil {
		return nil, n.refuse
	}
	n.orders = append(n.orders, o)
	n.startedWhileClosed = n.Runs(testGPU)
	c := client{n: n, tried: make(chan struct{}), r: cuda.Report{In: cuda.StepInit}}
	if n.hangs {
		return c, nil
	}
	one := 1
	c.r = cuda.Report{Tried: true, Devices: &one}
	for _, name := range []string{cuda.StepLoad, cuda.StepInit, cuda.StepCount, cuda.StepContext, cuda.StepBelow} {
		c.r.Steps = append(c.r.Steps, cuda.Step{Name: name, Result: "CUDA_SUCCESS"})
	}
	c.r.Steps = append(c.r.Steps, cuda.Step{Name: cuda.StepAbove, Code: n.above, Result: "result"})
	close(c.tried)
	return c, nil
}

// The client gets what a job gets, asks for a part of its limit and for more than it, while
// START sees the GPU closed; nothing of it stays but the result.
func TestVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		begin := time.Now()
		r := n.GPU(t.Context(), testGPU)
		if !r.OK || r.Skipped != "" || r.Driver != "550" || !strings.Contains(r.Text, "of its 4096 MiB it got 1024 MiB") {
			t.Errorf("%+v", r)
		}
		if time.Since(begin) < 2*time.Second || !n.startedWhileClosed || n.Runs(testGPU) {
			t.Errorf("START did not see the GPU closed: %s", time.Since(begin))
		}
		if n.reserved != 0 || n.ended != 1 || n.endedByMPS != 0 || n.changed != 1 {
			t.Errorf("something stays: %+v", n)
		}
		o := n.orders[0]
		if o.Below != 1024 || o.Above != 4097 || len(o.Environment) != 1 || o.Environment[0] != "A=1" || o.Account != nil {
			t.Errorf("%+v", o)
		}
		if last := n.Last(testGPU); last == nil || !last.OK || n.Missing(testGPU) != "" {
			t.Errorf("%+v, missing %q", last, n.Missing(testGPU))
		}
		// The next agent has it too.
		next := New(n.Options)
		if err := next.Read(); err != nil || next.Missing(testGPU) != "" {
			t.Errorf("%v, %q", err, next.Missing(testGPU))
		}
	})
}

// What does not hold is said, with what to do, and tried again later.
func TestFails(t *testing.T) {
	for want, bend := range map[string]func(*node){
		"4097 MiB were given to a client whose limit is 4096 MiB: nothing holds a job to its budget": func(n *node) { n.above = cuda.Success },
		"CUDA runs on it beside its control daemon, without a limit":                                 func(n *node) { n.beside = true },
		"cuInit did not return within 30s: see its log":                                              func(n *node) { n.hangs = true },
		"no: see whether uid 1000 may run gpuslotd's own program":                                    func(n *node) { n.refuse = errors.New("no") },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			bend(n)
			if r := n.GPU(t.Context(), testGPU); r.OK || !strings.Contains(r.Text, want) {
				t.Errorf("%+v, want %q", r, want)
			}
			if why := n.Missing(testGPU); !strings.Contains(why, "its verification failed: ") || !strings.Contains(why, "it is tried again at") {
				t.Errorf("missing: %q", why)
			}
			if n.reserved != 0 || n.hangs && n.endedByMPS != 1 {
				t.Errorf("something stays: %+v", n)
			}
		})
	}
}

// What keeps a GPU from being verified now is no result.
func TestSkipped(t *testing.T) {
	for want, bend := range map[string]func(*node){
		"jobs run on it":                 func(n *node) { n.busy = true },
		"it is not known":                func(n *node) { n.unknown = "it is not known" },
		"it is not shared":               func(n *node) { n.plan.GPUs[0].Mode = config.ModeWhole },
		"it is not in the plan any more": func(n *node) { n.plan.GPUs = nil },
		"a job came":                     func(n *node) { n.refusal = api.Refuse(api.CodeClosed, "a job came") },
		"this gpuslotd runs no CUDA":     func(n *node) { n.Start = nil },
	} {
		n := newNode(t)
		n.open = false
		bend(n)
		if r := n.GPU(t.Context(), testGPU); !strings.Contains(r.Skipped, want) || r.OK {
			t.Errorf("%+v, want %q", r, want)
		}
		if n.Last(testGPU) != nil || n.reserved != 0 || len(n.orders) > 0 || n.Runs(testGPU) {
			t.Errorf("%s: something stays", want)
		}
	}
}

// A GPU is verified by itself once it is due, well and idle, where that is the condition for
// opening, and again after what may have changed the result.
func TestDue(t *testing.T) {
	n := newNode(t)
	n.Hears = -1
	verified := func() int { n.Due(t.Context()); return len(n.orders) }
	if verified() != 0 {
		t.Error("it is no condition")
	}
	n.first = true
	n.well = false
	if verified() != 0 {
		t.Error("the GPU is not well")
	}
	n.well, n.busy = true, true
	if verified() != 0 {
		t.Error("a job runs")
	}
	n.busy = false
	for range 2 { // the second time it is verified already
		if verified() != 1 {
			t.Errorf("it was verified %d times", len(n.orders))
		}
	}
	good := Facts{Driver: "550", Daemon: n.daemon}
	for want, f := range map[string]Facts{
		"":                                     good,
		"the driver is 560 and was 550":        {Driver: "560", Daemon: n.daemon},
		"its control daemon was restarted":     {Driver: "550", Daemon: process.ID{PID: 6}},
		"its MPS server met a fatal GPU error": {Driver: "550", Daemon: n.daemon, Faulted: true},
		"an event closed it: Xid 79":           {Driver: "550", Closed: "Xid 79"},
	} {
		before := len(n.orders)
		if err := n.Revise(func(gpu.UUID) Facts { return f }); err != nil {
			t.Fatal(err)
		}
		if why := n.Missing(testGPU); want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("missing %q, want %q", why, want)
		}
		if n.Last(testGPU).OK != (want == "") {
			t.Errorf("%s: %+v", want, n.Last(testGPU))
		}
		if again := verified() - before; (again == 1) != (want != "") {
			t.Errorf("%s: verified %d times more", want, again)
		}
	}
	// What failed waits for its turn.
	n.above = cuda.Success
	n.GPU(t.Context(), testGPU)
	if before := len(n.orders); verified() != before {
		t.Error("it was tried again at once")
	}
}
