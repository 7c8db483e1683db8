package usage

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// The lines are dcgm-exporter's own: of A30s with MIG (its issue 317), and of
// V100s without TYPE lines (gpu-monitoring-tools issue 189), with values put in.
func TestParseDCGM(t *testing.T) {
	for file, want := range map[string]Activities{
		"a30-mig.prom": {
			{"GPU-265c9814-6156-355b-e589-ff2064894f16", 3}: 0,
			{"GPU-265c9814-6156-355b-e589-ff2064894f16", 4}: 0.381124,
			{"GPU-2d20791a-b4a6-ba59-97f1-e95b99fe5b49", 3}: 1,
		},
		"v100-pod.prom": {
			{"GPU-45984919-9e67-f2ec-9b84-a96fefa525ff", WholeGPU}: 0.25,
			{"GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf", WholeGPU}: 0.975,
		},
	} {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseDCGM(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", file, d)
		}
	}
}

func TestParseDCGMLeavesOutWhatIsNoShare(t *testing.T) {
	line := func(labels, value string) string { return smActive + "{" + labels + "} " + value + "\n" }
	text := line(`UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"`, "9223372036854775794") + // DCGM's "blank"
		line(`UUID="GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf"`, "NaN") +
		line(`UUID="MIG-08abd178-8a91-55c5-6a52-1ab4a05bcdaf"`, "0.5") +
		line(`UUID="GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf",GPU_I_ID="x"`, "0.5") + line(`gpu="0"`, "0.5")
	if got, err := parseDCGM(strings.NewReader(text)); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	_, err := parseDCGM(strings.NewReader("DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1\n"))
	if err == nil || !strings.Contains(err.Error(), "add it to the exporter's list of counters") {
		t.Errorf("an exporter without the field: %v", err)
	}
}

func FuzzParseDCGM(f *testing.F) {
	for _, file := range []string{"a30-mig.prom", "v100-pod.prom"} {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseDCGM(bytes.NewReader(b))
		if err != nil && got != nil {
			t.Fatal("values beside an error")
		}
		for i, v := range got {
			if u, err := gpu.ParseUUID(string(i.GPU)); err != nil || u != i.GPU || i.ID < WholeGPU || !(v >= 0 && v <= 1) {
				t.Fatalf("%+v: %v", i, v)
			}
		}
	})
}

func TestDCGMIsOnThisMachineOnly(t *testing.T) {
	for _, bad := range []string{"http://192.0.2.1:9400/metrics", "https://127.0.0.1/metrics", "http://example.org/", "127.0.0.1:9400", ""} {
		if _, err := NewDCGM(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func exporter(t *testing.T, answer http.HandlerFunc) *DCGM {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	d, err := NewDCGM(server.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.client.CloseIdleConnections)
	return d
}

func TestDCGMHasADeadlineAndALimit(t *testing.T) {
	ended := make(chan struct{})
	hangs := exporter(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(ended) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := hangs.Activities(ctx); err == nil {
		t.Error("an exporter that hangs has answered")
	}
	<-ended
	floods := exporter(t, func(w http.ResponseWriter, _ *http.Request) {
		for line := []byte("# " + strings.Repeat("x", 1<<16) + "\n"); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	if _, err := floods.Activities(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an exporter that never ends: %v", err)
	}
	elsewhere := exporter(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	if _, err := elsewhere.Activities(t.Context()); err == nil {
		t.Error("a redirect is followed")
	}
}

// A value may be older than the newest process: who came or went lately may
// have caused any part of it.
func TestDCGMIsOfSomeTimeAgo(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 102: slot2}
	n.bookings = []Booking{{Slot: slot1, Device: wholeA, MPS: true, Cap: 0.5}}
	s := n.sampler()
	s.options.DCGM = exporter(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(smActive + `{UUID="` + string(gpuA) + `"} 0.4` + "\n"))
	})
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib), on(102, gib))}
	var snap *Snapshot
	for range 60 {
		snap = n.round(t, s)
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	for k := range 30 {
		snap = n.round(t, s)
		if u, _ := snap.Slot(slot1, wholeA); u.SM.Lower.Value > 0 {
			t.Fatalf("%d s after slot1_2 has ended: %+v", k+1, u.SM)
		}
	}
	for range 10 {
		snap = n.round(t, s)
	}
	if u, _ := snap.Slot(slot1, wholeA); !same(u.SM, spread(Range{0.4, 0.4, 0.4})) {
		t.Errorf("alone for a minute: %+v", u.SM)
	}
}

// Where NVML does not tell the activity, the exporter's value takes its place,
// and its failure is its own.
func TestDCGMFillsIn(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Booking{{Slot: slot1, Device: wholeA, Share: 1}}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	up := true
	s := n.sampler()
	s.options.DCGM = exporter(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(smActive + `{UUID="` + string(gpuA) + `"} 0.75` + "\n"))
	})
	n.round(t, s)
	snap := n.round(t, s)
	d, _ := snap.Device(wholeA)
	if u, _ := snap.Slot(slot1, wholeA); d.ActivitySource != "dcgm" || !same(u.SM, spread(Range{0.75, 0.75, 0.75})) {
		t.Errorf("%+v, %+v", d, u)
	}
	up = false
	snap = n.round(t, s)
	d, _ = snap.Device(wholeA)
	if u, _ := snap.Slot(slot1, wholeA); d.Activity.Known || u.SM.Estimate.Known || u.Method != MethodExclusive {
		t.Errorf("the value of a dead exporter lives on: %+v, %+v", d, u)
	}
	if h := snap.Sources; len(h) != 2 || h[0].Err != nil || h[1].Source != "dcgm" || h[1].Err == nil || h[1].Succeeded.IsZero() {
		t.Errorf("%+v", h)
	}
}
