package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// sourceThatHangs is a driver that answers, or hangs as a call into it does:
// whatever the caller's deadline.
type sourceThatHangs struct {
	mu     sync.Mutex
	gone   chan struct{} // closed when it answers again
	energy uint64
}

func (s *sourceThatHangs) hang(gone chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

func (s *sourceThatHangs) Read(context.Context) ([]gpu.Reading, error) {
	s.mu.Lock()
	gone := s.gone
	s.energy += 1000
	energy := s.energy
	s.mu.Unlock()
	if gone != nil {
		<-gone
	}
	return []gpu.Reading{{
		GPU: uuid(0), At: time.Now(), Energy: gpu.Known(energy),
		Use: gpu.Use{
			Memory: gpu.Known(gpu.MemoryUse{Total: 100, Used: 40}), Processes: gpu.Known([]gpu.DeviceProcess{}),
			SMActivity: gpu.Known(gpu.Activity{Ratio: 0.5}),
		},
	}}, nil
}

// scrapeOf is what Prometheus gets from an agent.
func scrapeOf(t testing.TB, a *Agent) string {
	t.Helper()
	h, err := a.metrics.Handler(metrics.Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// value is that of the one series that begins so; not ok if there is none.
func value(text, series string) (v float64, ok bool) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, series); found {
			_, number, _ := strings.Cut(rest, " ")
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// samplingAgent is an agent that samples, and nothing else.
func samplingAgent(t testing.TB, source usage.Source, c config.Config) *Agent {
	t.Helper()
	daemons := newFakeDaemons()
	a, err := newAgent(Options{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Hardware: &fakeHardware{}, Startd: &fakeStartd{}, Usage: source,
		proc: newFakeProc(t).Root, daemons: daemons, clients: daemons, pipes: newFakeAccess(),
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	memoryUsed = `gpuslot_gpu_memory_used_bytes{gpu="GPU-00000000-0000-4000-8000-000000000000"}`
	nvmlUp     = `gpuslot_source_up{source="nvml"}`
	smSeconds  = `gpuslot_gpu_sm_seconds_total{gpu="GPU-00000000-0000-4000-8000-000000000000"}`
)

// TestScrapeBesideAHangingDriver: scrapes go on, what is stale vanishes, the
// source is down, and all comes back by itself.
func TestScrapeBesideAHangingDriver(t *testing.T) {
	source := &sourceThatHangs{}
	a := samplingAgent(t, source, config.Default())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.sampling.Run(ctx)
		look := func(after time.Duration, fresh bool, up float64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			text := scrapeOf(t, a)
			if v, ok := value(text, memoryUsed); ok != fresh || fresh && v != 40 {
				t.Errorf("memory in use: %v, %v", v, ok)
			}
			if v, ok := value(text, nvmlUp); !ok || v != up {
				t.Errorf("source up: %v, %v", v, ok)
			}
		}
		look(10*time.Second+time.Second/2, true, 1)
		gone := make(chan struct{})
		source.hang(gone)
		look(2*time.Second, true, 1)
		look(10*time.Second, false, 0)
		source.hang(nil)
		close(gone)
		look(5*time.Second, true, 1)
		cancel()
		synctest.Wait()
	})
}

// TestSamplingKeepsTheNewPace: an interval that is longer after a reload makes
// no sample stale.
func TestSamplingKeepsTheNewPace(t *testing.T) {
	a := samplingAgent(t, &sourceThatHangs{}, config.Default())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.sampling.Run(ctx)
		time.Sleep(5*time.Second + time.Second/2)
		synctest.Wait()
		before, _ := value(scrapeOf(t, a), smSeconds)
		slower := *a.view.Load()
		slower.config.Usage.Interval = 10 * time.Second
		a.view.Store(&slower)
		time.Sleep(100 * time.Second)
		synctest.Wait()
		text := scrapeOf(t, a)
		if v, ok := value(text, smSeconds); !ok || v < before+40 {
			t.Errorf("from %v to %v, %v in 100 s at half activity", before, v, ok)
		}
		cancel()
		synctest.Wait()
	})
}

// TestWhatIsToldOfJobs: by default no user, no group; nothing with "none".
func TestWhatIsToldOfJobs(t *testing.T) {
	for tell, want := range map[config.JobLabels]string{
		config.JobLabelsNone:               `accounting_group="",gpu="GPU-00000000-0000-4000-8000-000000000000",job_id="",method="none",mig="",slot="slot1_1",user="",vo=""`,
		config.Default().Metrics.JobLabels: `accounting_group="",gpu="GPU-00000000-0000-4000-8000-000000000000",job_id="7.0",method="none",mig="",slot="slot1_1",user="",vo="atlas"`,
		config.JobLabelsJobAndUser:         `accounting_group="group_atlas.alice",gpu="GPU-00000000-0000-4000-8000-000000000000",job_id="7.0",method="none",mig="",slot="slot1_1",user="alice",vo="atlas"`,
	} {
		c := config.Default()
		c.Metrics.JobLabels = tell
		a := samplingAgent(t, nil, c)
		r := jobUsing(0).Job
		r.Owner, r.Group, r.VO, r.Account = "alice", "group_atlas.alice", "atlas", starter.Account{UID: 54321, Known: true}
		a.jobs.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{r} })
		text := scrapeOf(t, a)
		if !strings.Contains(text, "gpuslot_slot_info{"+want+"} 1\n") {
			t.Errorf("%s: no slot_info with %s:\n%s", tell, want, text)
		}
		var ours strings.Builder // the process's own numbers, such as bytes sent, may read 7.04e+08
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "gpuslot_") {
				ours.WriteString(line)
			}
		}
		for _, word := range []string{"alice", "54321", "atlas", "7.0"} {
			if strings.Count(ours.String(), word) != strings.Count(want, word) {
				t.Errorf("%s: %s is told elsewhere", tell, word)
			}
		}
	}
}

// TestDCGMIsAsked: the configured exporter becomes a source.
func TestDCGMIsAsked(t *testing.T) {
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `DCGM_FI_PROF_SM_ACTIVE{UUID="`+string(uuid(0))+`"} 0.25`+"\n")
	}))
	defer exporter.Close()
	c := config.Default()
	c.Usage.DCGM = exporter.URL + "/metrics"
	a := samplingAgent(t, &sourceThatHangs{}, c)
	a.sampling.Round(t.Context())
	if v, ok := value(scrapeOf(t, a), `gpuslot_source_up{source="dcgm"}`); !ok || v != 1 {
		t.Errorf("%v, %v", v, ok)
	}
	c.Usage.DCGM = "http://192.0.2.1:9400/metrics"
	if err := (&Agent{}).newSampling(&sourceThatHangs{}, c.Usage); err == nil {
		t.Error("another machine tells what this one does")
	}
}

// The metrics have what the control daemon told last, and nothing of one that is
// not proven.
func TestMPSInMetrics(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	for i := range 2 {
		labels := `{gpu="` + string(uuid(i)) + `",mig=""}`
		text := scrapeOf(t, ta.Agent)
		if n, ok := value(text, "gpuslot_mps_clients"+labels); !ok || n != 0 {
			t.Errorf("GPU %d has %v clients, known: %v", i, n, ok)
		}
		if r, ok := value(text, "gpuslot_mps_default_thread_ratio"+labels); !ok || r <= 0 || r > 1 {
			t.Errorf("GPU %d has the ratio %v, known: %v", i, r, ok)
		}
	}
	v := *ta.view.Load()
	v.daemons = nil
	ta.view.Store(&v)
	text := scrapeOf(t, ta.Agent)
	if strings.Contains(text, "gpuslot_mps_clients{") || strings.Contains(text, "gpuslot_mps_default_thread_ratio{") {
		t.Error("a control daemon that is not proven has clients or a limit")
	}
}
