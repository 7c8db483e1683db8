package closures

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
)

// fakeNode is what a Quiescer has to do with.
type fakeNode struct {
	slots           []string
	unknown         string
	unready, unwell string
	failed          []Closure
	err             error
	letGo, reverted int
	verified        int
	events          []history.Event
	// looks counts the looks at jobs and processes.
	looks int

	// mu is for a test beside the loop.
	mu sync.Mutex
}

func (n *fakeNode) Holding() ([]string, string) {
	n.looks++
	return n.slots, n.unknown
}

func (n *fakeNode) LetGo(_ context.Context, revert bool) error {
	if n.err != nil {
		return n.err
	}
	if n.letGo++; revert {
		n.reverted++
	}
	return nil
}

func (n *fakeNode) Holders() ([]api.NodeHolder, error) {
	n.looks++
	return []api.NodeHolder{{PID: 812}}, n.err
}

func (n *fakeNode) Version() string       { return "580.95.05" }
func (n *fakeNode) Unwell() string        { return n.unwell }
func (n *fakeNode) Event(e history.Event) { n.events = append(n.events, e) }

func (n *fakeNode) Unready() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unready
}

func (n *fakeNode) Verify(context.Context) ([]Closure, error) {
	n.verified++
	return n.failed, n.err
}

func newQuiescer(t *testing.T) (*Quiescer, *fakeNode) {
	n, dir := &fakeNode{}, t.TempDir()
	q := &Quiescer{
		Table: NewTable(filepath.Join(dir, "holds.json")), Jobs: n, Driver: n, GPUs: n, Events: n,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Inventory: filepath.Join(dir, "quiesced.json"), Wake: func() {},
	}
	return q, n
}

func (q *Quiescer) must(t *testing.T, req api.Request) {
	t.Helper()
	if _, err := q.Ask(req); err != nil {
		t.Fatal(err)
	}
}

// TestOutAndBack: each step out of service and back, with what it waits for.
func TestOutAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, n := newQuiescer(t)
		if q.Leave(ctx) || q.Status().Phase != "" {
			t.Error("a node that serves leaves")
		}
		n.slots = []string{"slot1_1 (alice on GPU-a)"}
		q.must(t, api.Request{Verb: api.VerbQuiesce, Reason: "driver 580"})
		if why := q.Table.On(gpuA).Reason(); !strings.Contains(why, "the node is quiescing: driver 580") {
			t.Errorf("the GPU is closed by %q", why)
		}
		time.Sleep(2 * settles)
		if s := q.Status(); q.Leave(ctx) || len(s.Jobs) != 1 || !strings.Contains(s.Waits, "slot1_1 (alice on GPU-a)") {
			t.Errorf("with a job: %+v", s)
		}
		n.slots, n.err = nil, errors.New("a control daemon does not end")
		if q.Leave(ctx) || q.Table.Node().Phase != Quiescing {
			t.Error("it left although the driver is in use")
		}
		n.err = nil
		if !q.Leave(ctx) || n.letGo != 1 || n.reverted != 0 || q.Table.Node().Phase != Quiesced {
			t.Errorf("it waits for %q", q.Status().Waits)
		}
		if s := q.Status(); s.Phase != "quiescing" || !strings.Contains(s.Waits, "starts again") {
			t.Errorf("while it still has the driver's library: %+v", s)
		}
		if q.Quiet = true; q.Leave(ctx) || q.Status().Phase != "quiesced" || len(q.Status().Holders) != 1 { // the next process
			t.Error("a quiesced node leaves again")
		}
		n.err = errors.New("open /proc: too many open files")
		if s := q.Status(); !strings.Contains(s.Waits, "too many open files") {
			t.Errorf("who has the driver's devices open is not known: %+v", s)
		}
		n.err = nil
		q.must(t, api.Request{Verb: api.VerbResume})
		if q.TryResume(ctx) != "" || !q.Leave(ctx) {
			t.Error("a process without the driver resumes")
		}
		q.Quiet = false // a process with the new driver
		if err := os.WriteFile(q.Inventory, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		n.unready, n.unwell = "the driver is loading", "GPU 0: no proof yet"
		if why := q.TryResume(ctx); why != n.unready || q.Status().Waits != n.unready {
			t.Errorf("it waits for %q", why)
		}
		n.unready = ""
		if why := q.TryResume(ctx); why != n.unwell || n.verified != 0 {
			t.Errorf("it waits for %q", why)
		}
		time.Sleep(2 * resumeWaits)
		n.err = errors.New("gpuslotd is ending")
		if why := q.TryResume(ctx); why != "gpuslotd is ending" || q.Table.Node().Phase != Resuming {
			t.Errorf("it waits for %q", why)
		}
		n.err, n.failed = nil, []Closure{{GPU: gpuB, Owner: OwnerNode, Reason: "no limits"}}
		if why := q.TryResume(ctx); why != "" || q.Table.Node().Phase != Serving ||
			len(q.Table.On(gpuA)) != 0 || len(q.Table.On(gpuB)) != 1 {
			t.Errorf("it waits for %q; closed: %v, %v", why, q.Table.On(gpuA), q.Table.On(gpuB))
		}
		if _, err := os.Stat(q.Inventory); err == nil {
			t.Error("a file stays behind")
		}
		const last = "The node serves again (driver 580.95.05); 1 GPUs did not pass their verification."
		if e := n.events[len(n.events)-1]; e.Text != last {
			t.Errorf("the last event is %+v", e)
		}
	})
}

// TestRevertUnknown: a node whose jobs are not known waits, unless it is forced.
func TestRevertUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, n := newQuiescer(t)
		n.unknown = "the startd does not answer"
		q.must(t, api.Request{Verb: api.VerbRevert, Reason: "other GPUs"})
		time.Sleep(2 * settles)
		if q.Leave(t.Context()) || !strings.Contains(q.Status().Waits, "gpuslot node revert --force") {
			t.Errorf("it waits for %q", q.Status().Waits)
		}
		q.must(t, api.Request{Verb: api.VerbRevert, Reason: "other GPUs", Force: true})
		if !q.Leave(t.Context()) || n.reverted != 1 || q.Table.Node().Phase != Reverted {
			t.Errorf("%+v", q.Status())
		}
	})
}

// TestResumeLoop: the loop opens the node when its GPUs are back, without a CUDA client
// where the operator said so, and ends with its context.
func TestResumeLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, n := newQuiescer(t)
		var log bytes.Buffer
		q.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := q.Table.SetNode(Node{Phase: Resuming, Since: time.Now(), Unverified: true}); err != nil {
			t.Fatal(err)
		}
		n.unready = "the driver is loading"
		ctx, cancel := context.WithCancel(t.Context())
		go q.Resume(ctx)
		time.Sleep(10 * resumePace)
		synctest.Wait()
		if p := q.Table.Node().Phase; p != Resuming {
			t.Errorf("it is %q while %s", p, n.unready)
		}
		n.mu.Lock()
		n.unready = ""
		n.mu.Unlock()
		time.Sleep(2 * resumePace)
		synctest.Wait()
		if p := q.Table.Node().Phase; p != Serving || n.verified != 0 {
			t.Errorf("it is %q, verified %d times", p, n.verified)
		}
		cancel()
		synctest.Wait()
		if got := log.String(); strings.Count(got, "the node resumes") != 1 {
			t.Errorf("what it waits for is logged once: %s", got)
		}
	})
}

// TestPhase: what every account may ask for looks at no job and no process.
func TestPhase(t *testing.T) {
	q, n := newQuiescer(t)
	q.must(t, api.Request{Verb: api.VerbQuiesce, Reason: "new driver"})
	n.slots = []string{"slot1_1 (alice on GPU-a)"}
	for _, q.Quiet = range []bool{false, true} {
		before := n.looks
		if s := q.Phase(); s.Phase != string(Quiescing) || s.Reason != "new driver" || s.Since.IsZero() ||
			len(s.Jobs)+len(s.Holders) > 0 || n.looks != before {
			t.Errorf("%+v after %d looks", s, n.looks-before)
		}
	}
}
