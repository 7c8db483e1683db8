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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

const migUUID = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")

// sampledAt is a snapshot of one GPU that was read at a time, with a slot.
func sampledAt(at time.Time) *usage.Snapshot {
	d := usage.Device{GPU: uuid(0)}
	return &usage.Snapshot{
		At:       at,
		Devices:  []usage.DeviceUsage{{Device: d, At: at, Method: usage.MethodExclusive}},
		Slots:    []usage.SlotUsage{{Slot: rules.SlotKey(jobUsing(0).Starter), Device: d, Method: usage.MethodExclusive, Processes: 1, Memory: gpu.Known(gpu.Bytes(7))}},
		Counters: []usage.SlotCounters{{Slot: "slot1_1", Device: d}},
		Sources:  []usage.Health{{Source: "nvml", Took: time.Millisecond, Succeeded: at, Failures: 3}},
	}
}

// TestStaleSamplesAreNotShown: three intervals, whatever the sampler does; the
// job table stays.
func TestStaleSamplesAreNotShown(t *testing.T) {
	at := time.Unix(1000, 0)
	running := []jobs.Job{jobUsing(0).Job}
	c := config.Default()
	fresh := usageOf(sampledAt(at), running, c, at.Add(3*time.Second))
	if len(fresh.Devices) != 1 || len(fresh.Counters) != 1 || len(fresh.Slots) != 1 || !fresh.Slots[0].Usage.Memory.Known || !fresh.Sources[0].Up {
		t.Errorf("after three intervals: %+v", fresh)
	}
	stale := usageOf(sampledAt(at), running, c, at.Add(3*time.Second+1))
	want := metrics.Usage{
		Sampled: at,
		Sources: []metrics.Source{{Name: "nvml", Took: gpu.Known(time.Millisecond), Succeeded: at, Failures: gpu.Known(uint64(3))}},
		Slots: []metrics.Slot{{
			Usage:  usage.SlotUsage{Slot: rules.SlotKey(running[0].Starter), Device: usage.Device{GPU: uuid(0)}, Method: usage.MethodNone},
			Budget: gpu.Known(gpu.Bytes(4096 * mib)), Labels: metrics.JobLabels{ID: "7.0"},
		}},
	}
	if d := cmp.Diff(want, stale); d != "" {
		t.Errorf("later (-want +got):\n%s", d)
	}
	if never := usageOf(&usage.Snapshot{}, nil, c, at); len(never.Sources) != 0 || !never.Sampled.IsZero() {
		t.Errorf("before the first round: %+v", never)
	}
}

// TestTwoJobsOnOneSlot: the one that goes and the one that comes are one slot,
// with what both hold and the later one's name.
func TestTwoJobsOnOneSlot(t *testing.T) {
	at := time.Unix(1000, 0)
	snap := sampledAt(at)
	before := jobs.Job{Starter: jobUsing(0).Starter, GPU: uuid(0), Budget: 1, ID: "7.0", Since: at}
	now := before
	now.Starter.PID, now.Starter.Started, now.ID, now.Budget, now.Since = 200, 2, "8.0", 2, at.Add(time.Second)
	snap.Slots = append(snap.Slots, usage.SlotUsage{Slot: rules.SlotKey(now.Starter), Device: usage.Device{GPU: uuid(0)}, Processes: 2, Memory: gpu.Known(gpu.Bytes(5)), Peak: gpu.Known(gpu.Bytes(6))})
	for name, running := range map[string][]jobs.Job{"in order": {before, now}, "out of order": {now, before}} {
		got := usageOf(snap, running, config.Default(), at).Slots
		if len(got) != 1 {
			t.Fatalf("%s: %d slots", name, len(got))
		}
		s := got[0]
		if s.Usage.Processes != 3 || s.Usage.Memory != gpu.Known(gpu.Bytes(12)) || s.Usage.Peak != gpu.Known(gpu.Bytes(6)) || s.Labels.ID != "8.0" || s.Budget.Value != 2*mib {
			t.Errorf("%s: %+v", name, s)
		}
	}
	snap.Slots[0].Memory = gpu.Measured[gpu.Bytes]{}
	if s := usageOf(snap, nil, config.Default(), at).Slots[0]; s.Usage.Memory.Known {
		t.Errorf("an unknown part makes a known sum: %+v", s.Usage)
	}
}

// TestNoSlotTwice: whatever meets on a slot, a scrape has it once per device,
// or Prometheus would refuse all of it.
func TestNoSlotTwice(t *testing.T) {
	at := time.Unix(1000, 0)
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]string{"slot1_1", "slot1_2", "slot1_10"})
		gpus := rapid.SampledFrom([]gpu.UUID{uuid(0), uuid(1), migUUID})
		ages := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute})
		snap := &usage.Snapshot{At: at}
		for _, d := range []usage.Device{{GPU: uuid(0)}, {GPU: uuid(1)}, {GPU: uuid(1), MIG: migUUID}} {
			if rapid.Bool().Draw(t, "there") {
				snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: d, At: at.Add(-ages.Draw(t, "age"))})
			}
			for range rapid.IntRange(0, 4).Draw(t, "jobs") {
				k := usage.SlotKey{Slot: slots.Draw(t, "slot"), Starter: rapid.IntRange(0, 9).Draw(t, "starter")}
				snap.Slots = append(snap.Slots, usage.SlotUsage{Slot: k, Device: d})
			}
		}
		var running []jobs.Job
		for i := range rapid.IntRange(0, 6).Draw(t, "running") {
			running = append(running, jobs.Job{Starter: starter.Starter{ID: process.ID{PID: i}, Slot: slots.Draw(t, "slot")}, GPU: gpus.Draw(t, "gpu"), Since: at.Add(ages.Draw(t, "since")), ID: "1.0"})
		}
		seen := map[nameOn]bool{}
		for _, s := range usageOf(snap, running, config.Default(), at).Slots {
			n := nameOn{s.Usage.Slot.Slot, s.Usage.Device}
			if seen[n] {
				t.Fatalf("%+v is there twice", n)
			}
			seen[n] = true
		}
		for _, r := range running {
			if !seen[nameOn{r.Starter.Slot, snap.DeviceOf(r.GPU)}] {
				t.Fatalf("%+v is missing", r)
			}
		}
	})
}

// TestSlotOnMIGDevice: what is booked by the MIG device's UUID is found where
// it was sampled.
func TestSlotOnMIGDevice(t *testing.T) {
	at := time.Unix(1000, 0)
	snap := sampledAt(at)
	d := usage.Device{GPU: uuid(0), MIG: migUUID}
	snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: d, At: at})
	snap.Slots[0].Device = d
	r := jobUsing(0).Job
	r.GPU = migUUID
	if got := usageOf(snap, []jobs.Job{r}, config.Default(), at).Slots; len(got) != 1 || got[0].Usage.Device != d || got[0].Labels.ID != "7.0" {
		t.Errorf("%+v", got)
	}
}

// TestFaultsBeginAtZero: what an alert waits for is there before it happens.
func TestFaultsBeginAtZero(t *testing.T) {
	gpus := []plan.GPU{{UUID: uuid(0)}}
	counted := []faults.Counted{{GPU: uuid(0), Reason: "xid-79", Class: gpu.XIDBroken, Count: 2}, {GPU: uuid(1), Reason: "lost", Class: gpu.XIDNeedsReset, Count: 1}}
	got := map[string]int{}
	for _, f := range faultsOf(gpus, counted) {
		if _, twice := got[string(f.GPU)+f.Reason]; twice || f.Class == "" {
			t.Errorf("%+v", f)
		}
		got[string(f.GPU)+f.Reason] = f.Count
	}
	want := map[string]int{string(uuid(1)) + "lost": 1}
	for _, n := range criticalXIDs {
		want[string(uuid(0))+"xid-"+strconv.Itoa(n)] = 0
	}
	want[string(uuid(0))+"xid-79"] = 2
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
}

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
	if err := (&Agent{}).newSampling(&sourceThatHangs{}, c.Usage, ""); err == nil {
		t.Error("another machine tells what this one does")
	}
}

func TestWhatDaemonsTell(t *testing.T) {
	server := func(percent string, clients ...int) mps.Server {
		return mps.Server{Status: mps.Active, ThreadPercentage: percent, Clients: clients}
	}
	for name, c := range map[string]struct {
		servers []mps.Server
		want    gpu.Measured[float64]
	}{
		"no server":                 {nil, gpu.Known(0.0)},
		"two":                       {[]mps.Server{server("50.0", 11, 12), server("50.0", 13)}, gpu.Known(3.0)},
		"one that does not answer":  {[]mps.Server{server("50.0", 11), server("")}, gpu.Measured[float64]{}},
		"a server without a client": {[]mps.Server{server("50.0")}, gpu.Known(0.0)},
	} {
		if got := clientsOf(mps.Proof{States: c.servers}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for text, want := range map[string]float64{"25.0": 0.25, "100.0": 1, "0.1": 0.001} {
		if got := threadRatio(mps.Proof{ThreadPercentage: text}); !got.Known || strconv.FormatFloat(got.Value, 'g', 4, 64) != strconv.FormatFloat(want, 'g', 4, 64) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if got := threadRatio(mps.Proof{}); got.Known {
		t.Errorf("nothing was read back: %+v", got)
	}
}

// The metrics have what the control daemon told last, and nothing of one that is
// not proven.
func TestMPSInMetrics(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	for i, g := range ta.snapshot().GPUs {
		if g.Device.GPU != uuid(i) || g.Device.MIG != "" || g.Clients != gpu.Known(0.0) || !g.ThreadRatio.Known || g.ThreadRatio.Value <= 0 || g.ThreadRatio.Value > 1 {
			t.Errorf("%+v", g)
		}
	}
	v := *ta.view.Load()
	v.daemons = nil
	ta.view.Store(&v)
	for _, g := range ta.snapshot().GPUs {
		if g.Clients.Known || g.ThreadRatio.Known {
			t.Errorf("not proven: %+v", g)
		}
	}
}
