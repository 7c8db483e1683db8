package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/gpu"
)

func pageOf(t *testing.T, a *Agent) string {
	t.Helper()
	w := httptest.NewRecorder()
	h, err := page.Handler(func() page.Node { return page.NodeOf(a.reader.Take(time.Now())) }, &a.lastHour)
	if err != nil {
		t.Fatal(err)
	}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestPageNamesNobody: GPUs, slots and budgets, but no owner, account or job,
// also where the reason for which a GPU is closed has one.
func TestPageNamesNobody(t *testing.T) {
	ta := newTestAgent(t, 3, "[gpu.\""+string(uuid(1))+"\"]\ntenancy = \"common:nosuchuser\"\n")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 8192)
	ta.grant(ta.proc.starter(101, "slot1_2"), 1000, "alice", uuid(0), 4096)
	text := pageOf(t, ta.Agent)
	for _, want := range []string{"GPU 0", "GPU 1, closed", "slot1_1", "slot1_2", "wn1.example.org", "takes jobs", "It takes no new jobs for now"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %s", want)
		}
	}
	for _, r := range ta.jobs.Running() {
		for _, secret := range []string{r.Owner, r.AccountName(), "nosuchuser"} {
			if secret == "" || strings.Contains(text, secret) {
				t.Errorf("the page tells %q", secret)
			}
		}
		if strings.Contains(text, ">"+r.ID+"<") {
			t.Errorf("the page tells the job %q", r.ID)
		}
	}
}

// TestPageSaysWhy: each way to be closed has its general word.
func TestPageSaysWhy(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	g := &ta.view.Load().plan.GPUs[0]
	say := func() string {
		s := ta.reader.Take(time.Now())
		return s.GeneralReason(&s.GPUs[0])
	}
	if why := say(); why != "" {
		t.Errorf("an open GPU is closed: %s", why)
	}
	if err := ta.close("0", "node-health", "the job of mallory is too hot"); err != nil {
		t.Fatal(err)
	}
	if why := say(); !strings.HasPrefix(why, "Closed by node-health.") || strings.Contains(why, "mallory") {
		t.Errorf("held: %q", why)
	}
	if _, err := ta.open("0", "node-health", false); err != nil {
		t.Fatal(err)
	}
	ta.faults.Event(gpu.Event{GPU: g.UUID, Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	if why := say(); !strings.HasPrefix(why, "Its hardware") {
		t.Errorf("Xid 79: %q", why)
	}
	v := *ta.view.Load()
	v.present = nil
	ta.view.Store(&v)
	if why := say(); !strings.HasPrefix(why, "The node does not have it") {
		t.Errorf("gone: %q", why)
	}
}

// TestPageRemembers: the samples become the last hour, and what the status tells.
func TestPageRemembers(t *testing.T) {
	a := samplingAgent(t, &sourceThatHangs{}, config.Default())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.sampling.Run(ctx)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if text := pageOf(t, a); !strings.Contains(text, "SM time in the last hour: 50 % to 50 %, last 50 %") || !strings.Contains(text, "VRAM in the last hour: 40 % to 40 %") {
			t.Errorf("the page has no hour:\n%s", text[strings.Index(text, "<main>"):])
		}
		cancel()
		synctest.Wait()
	})
	if u := a.sampling.Uses(uuid(0)); u.SM == nil || *u.SM != 0.5 || u.Watts != nil {
		t.Errorf("the status has %+v", u)
	}
}

// TestMetricsNotServed: the status says that metrics are not served.
func TestMetricsNotServed(t *testing.T) {
	a := samplingAgent(t, nil, config.Default())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	a.port.Serve(t.Context(), l, "")
	if got := strings.Join(a.status().Warnings, "\n"); !strings.Contains(got, "Metrics are not served") {
		t.Errorf("warnings %q", got)
	}
}
