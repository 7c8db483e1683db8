package dcgm

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

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// The lines are dcgm-exporter's own: of A30s with MIG (its issue 317), and of
// V100s without TYPE lines (gpu-monitoring-tools issue 189), with values put in.
func TestParse(t *testing.T) {
	for file, want := range map[string]usage.Activities{
		"a30-mig.prom": {
			{GPU: "GPU-265c9814-6156-355b-e589-ff2064894f16", ID: 3}: 0,
			{GPU: "GPU-265c9814-6156-355b-e589-ff2064894f16", ID: 4}: 0.381124,
			{GPU: "GPU-2d20791a-b4a6-ba59-97f1-e95b99fe5b49", ID: 3}: 1,
		},
		"v100-pod.prom": {
			{GPU: "GPU-45984919-9e67-f2ec-9b84-a96fefa525ff", ID: usage.WholeGPU}: 0.25,
			{GPU: "GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf", ID: usage.WholeGPU}: 0.975,
		},
	} {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", file, d)
		}
	}
}

// TestParsesItsOwnLines: what else is printed costs no parsing, and its mistakes do not count.
func TestParsesItsOwnLines(t *testing.T) {
	text := "x{ 1 2 3\n# TYPE " + smActive + " gauge\n" + smActive + `{UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"} 0.5` + "\n} y"
	got, err := parse(strings.NewReader(text))
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestParseLeavesOutWhatIsNoShare(t *testing.T) {
	line := func(labels, value string) string { return smActive + "{" + labels + "} " + value + "\n" }
	text := line(`UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"`, "9223372036854775794") + // DCGM's "blank"
		line(`UUID="GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf"`, "NaN") +
		line(`UUID="MIG-08abd178-8a91-55c5-6a52-1ab4a05bcdaf"`, "0.5") +
		line(`UUID="GPU-08abd178-8a91-05c5-6a52-1ab4a05bcdaf",GPU_I_ID="x"`, "0.5") + line(`gpu="0"`, "0.5")
	if got, err := parse(strings.NewReader(text)); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	_, err := parse(strings.NewReader("DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1\n"))
	if err == nil || !strings.Contains(err.Error(), "add it to the exporter's list of counters") {
		t.Errorf("an exporter without the field: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range []string{"a30-mig.prom", "v100-pod.prom"} {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parse(bytes.NewReader(b))
		if err != nil && got != nil {
			t.Fatal("values beside an error")
		}
		for i, v := range got {
			if u, err := gpu.ParseUUID(string(i.GPU)); err != nil || u != i.GPU || i.ID < usage.WholeGPU || !(v >= 0 && v <= 1) {
				t.Fatalf("%+v: %v", i, v)
			}
		}
	})
}

func TestOnThisMachineOnly(t *testing.T) {
	for _, bad := range []string{"http://192.0.2.1:9400/metrics", "https://127.0.0.1/metrics", "http://example.org/", "127.0.0.1:9400", ""} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func exporter(t *testing.T, answer http.HandlerFunc) *Exporter {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	d, err := New(server.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.client.CloseIdleConnections)
	return d
}

func TestHasADeadlineAndALimit(t *testing.T) {
	ended := make(chan struct{})
	hangs := exporter(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(ended) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := hangs.Activities(ctx); err == nil {
		t.Error("an exporter that hangs has answered")
	}
	<-ended
	for line, want := range map[string]string{
		"# " + strings.Repeat("x", 1<<10) + "\n": "more than 2097152 bytes",
		smActive + "{gpu=\"0\"} 1\n":             "more than 262144 bytes of " + smActive,
		strings.Repeat("x", 1<<16):               "too long",
	} {
		floods := exporter(t, func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write([]byte(line)); err != nil {
					return
				}
			}
		})
		if _, err := floods.Activities(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an exporter that never ends: %v, want %s", err, want)
		}
	}
	elsewhere := exporter(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	if _, err := elsewhere.Activities(t.Context()); err == nil {
		t.Error("a redirect is followed")
	}
}
