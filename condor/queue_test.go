package condor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

func TestParseWaiting(t *testing.T) {
	got := parseWaiting("2 undefined 61\n1 20480 600\nAll queues are empty\n\nundefined 4096 3\n1 4096 undefined\n1 -5 -7\n")
	want := []WaitingJob{{GPUs: 2, Waited: 61 * time.Second}, {GPUs: 1, VRAM: 20480, Waited: 10 * time.Minute}, {GPUs: 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func FuzzParseWaiting(f *testing.F) {
	f.Add("2 undefined 61\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, j := range parseWaiting(text) {
			if j.GPUs < 1 || j.VRAM < 0 || j.Waited < 0 {
				t.Errorf("%+v", j)
			}
		}
	})
}

// What is asked for is what START lets in, whenever that may be.
func TestIdle(t *testing.T) {
	got := examples()["elastic"].Idle(time.Minute, 20*time.Minute, 2, 16384)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"whole":  {got.Whole, []string{"RequestGPUs <= 2", "RequestVRAM > 32256", "RequestCpus ?: 1) <= 11 * RequestGPUs", ">= 60"}},
		"shared": {got.Shared, []string{"RequestGPUs =?= 1", "RequestVRAM <= 32256", ">= 60"}},
		"large":  {got.Large, []string{"RequestVRAM >= 16384", ">= 1200"}},
	} {
		for _, want := range append(c.want, "JobStatus == 1") {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s: %q is not in %s", name, want, c.text)
			}
		}
		if strings.Contains(c.text, "TARGET") || strings.Contains(c.text, "MY.") || strings.Contains(c.text, "$(") {
			t.Errorf("%s speaks of a slot: %s", name, c.text)
		}
	}
	if none := examples()["only-whole"].Idle(time.Minute, time.Hour, 0, 0); none != (Idle{}) {
		t.Errorf("without shared GPUs there is nothing to ask: %+v", none)
	}
	if never := examples()["shared"].Idle(time.Minute, 0, 0, 0); never.Whole != "" || never.Large != "" {
		t.Errorf("no elastic GPUs, no large requests: %+v", never)
	}
}

func TestElasticAd(t *testing.T) {
	s := ElasticState{Open: 2, GPUs: []gpu.UUID{uuid(2), uuid(1)}, Least: 2, Time: time.Unix(1795254170, 0), Since: time.Unix(1795254100, 0)}
	const want = `SlotMergeConstraint = GPUSlotElastic =?= true
GPUAccept = true
GPUAcceptReason = ""
GPUAcceptTime = 1795254170
GPUWholeOpen = 2
GPUWholeLeast = 2
GPUWholeOpenGPUs = "GPU-00000002-5be4-11f1-9c2d-0242ac120002, GPU-00000001-5be4-11f1-9c2d-0242ac120002"
- elastic update:false
`
	if d := cmp.Diff(want, string(s.Ad())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if o := s; !s.SaysTheSame(o) {
		t.Error("it differs from itself")
	}
	for name, change := range map[string]func(*ElasticState){
		"open": func(s *ElasticState) { s.Open = 1 }, "least": func(s *ElasticState) { s.Least = 1 },
		"reason": func(s *ElasticState) { s.Reason = "x" }, "GPUs": func(s *ElasticState) { s.GPUs = nil },
	} {
		o := s
		if change(&o); s.SaysTheSame(o) {
			t.Errorf("%s: no difference", name)
		}
	}
}
