package dcgm

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
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

// TestManyLabels: the work for a line grows as the line, whatever a job prints in the exporter's place. It is
// counted in bytes of memory, since time differs between runs.
func TestManyLabels(t *testing.T) {
	work := func(labels int) uint64 {
		line := smActive + "{"
		for i := range labels {
			line += fmt.Sprintf(`a%x="",`, i)
		}
		line += `UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"} 0.5` + "\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got, err := parse(strings.NewReader(line)); err != nil || len(got) != 1 {
			t.Errorf("%d labels: %v, %v", labels, got, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := work(500), work(4000); many > 16*few {
		t.Errorf("%d bytes for 500 labels, %d for 4000", few, many)
	}
}

// TestParseSample: the forms that the format allows, and some that it does not.
func TestParseSample(t *testing.T) {
	const id = `UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"`
	for text, want := range map[string]bool{
		"{" + id + "} 0.5": true,
		" { a = \"\" , " + id + " , } 5e-1 1700000000000": true,
		`{pod="},UUID=\"x\\",` + id + "}\t0.5":            true,
		"{" + id + " 0.5":                                 false,
		"{" + id[:10] + "} 0.5":                           false,
		"{" + id + "}":                                    false,
		"{" + id + "} 0.5 1 2":                            false,
		"{" + id + "} x":                                  false,
		"{UUID=`x`} 0.5":                                  false,
		"{" + id[:4] + "} 0.5":                            false,
	} {
		labels, v, ok := parseSample(text)
		if ok != want || ok && (v != 0.5 || labels["UUID"] != id[6:len(id)-1]) {
			t.Errorf("%s: %v, %v, %t", text, labels, v, ok)
		}
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

// TestLocalhost: a name may have several addresses, and a job can take the port at one of them.
func TestLocalhost(t *testing.T) {
	for given, want := range map[string]string{
		"http://localhost:9400/localhost": "http://127.0.0.1:9400/localhost",
		"http://localhost/metrics":        "http://127.0.0.1/metrics",
		"http://[::1]:9400/metrics":       "http://[::1]:9400/metrics",
	} {
		if d, err := New(given); err != nil || d.url != want {
			t.Errorf("%s: %+v, %v", given, d, err)
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hangs := exporter(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		close(ended)
	})
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

// TestEndlessAnswer: reading an answer takes no notice of its deadline. The question has one all the same,
// and there is one at a time. After the answer the exporter is asked again.
func TestEndlessAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, asked := make(chan struct{}), 0
		d := &Exporter{read: func(context.Context) (usage.Activities, error) {
			asked++
			<-end
			return usage.Activities{}, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 {
			if _, err := d.Activities(ctx); err == nil {
				t.Error("an answer that is not read counts")
			}
		}
		close(end)
		synctest.Wait()
		if _, err := d.Activities(t.Context()); err != nil || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	})
}
