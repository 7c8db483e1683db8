package condor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// What waits for the node is what START lets in, whenever that may be.
func TestTakes(t *testing.T) {
	elastic, whole := examples()["elastic"], examples()["elastic"]
	whole.WithoutRequest = WithoutRequestWhole
	for _, c := range []struct {
		name          string
		node          Node
		job           Waiting
		whole, shared bool
	}{
		{"two GPUs", elastic, Waiting{GPUs: 2}, true, false},
		{"more GPUs than the site allows", elastic, Waiting{GPUs: 3}, false, false},
		{"a share", elastic, Waiting{GPUs: 1, VRAM: 32256}, false, true},
		{"more than a share", elastic, Waiting{GPUs: 1, VRAM: 32257}, true, false},
		{"more than a GPU", elastic, Waiting{GPUs: 1, VRAM: 32769}, false, false},
		{"as much as two GPUs", elastic, Waiting{GPUs: 2, VRAM: 65536}, true, false},
		{"no VRAM", elastic, Waiting{GPUs: 1}, false, false},
		{"no VRAM, where that is a whole GPU", whole, Waiting{GPUs: 1}, true, false},
		{"all CPUs of two", elastic, Waiting{GPUs: 2, CPUs: 22, Memory: 88064}, true, false},
		{"one CPU more", elastic, Waiting{GPUs: 2, CPUs: 23}, false, false},
		{"more memory", elastic, Waiting{GPUs: 2, Memory: 88064 + 128}, false, false},
		{"a GPU that is there", elastic, Waiting{GPUs: 2, Require: "Capability >= 7.000000000000000E+00"}, true, false},
		{"a GPU that is not there", elastic, Waiting{GPUs: 2, Require: "Capability >= 9.000000000000000E+00"}, false, false},
		{"what is not understood", elastic, Waiting{GPUs: 2, Require: "f(x)"}, true, false},
		{"no GPU", elastic, Waiting{VRAM: 32257}, false, false},
		{"no GPU, and a share", elastic, Waiting{VRAM: 4096}, false, false},
		{"a share, where no VRAM is a whole GPU", whole, Waiting{GPUs: 1, VRAM: 4096}, false, true},
		{"two GPUs with little VRAM", whole, Waiting{GPUs: 2, VRAM: 4096}, true, false},
		{"all of one GPU", elastic, Waiting{GPUs: 1, VRAM: 32768}, true, false},
		{"one CPU more than of one GPU", elastic, Waiting{GPUs: 1, VRAM: 32768, CPUs: 12}, false, false},
		{"as much as two GPUs, and more", elastic, Waiting{GPUs: 2, VRAM: 65537}, false, false},
		{"no elastic GPUs", examples()["shared"], Waiting{GPUs: 2}, false, false},
		{"no shared GPUs", examples()["only-whole"], Waiting{GPUs: 1, VRAM: 4096}, false, false},
	} {
		if got := c.node.TakesWhole(c.job, 2); got != c.whole {
			t.Errorf("%s: whole %t", c.name, got)
		}
		if got := c.node.TakesShared(c.job); got != c.shared {
			t.Errorf("%s: shared %t", c.name, got)
		}
	}
}

func TestTakesAtMost(t *testing.T) {
	node := examples()["elastic"] // two of its GPUs are elastic
	for most, want := range []int{0, 1, 2, 2} {
		for gpus := 1; gpus <= 3; gpus++ {
			if got := node.TakesWhole(Waiting{GPUs: gpus, VRAM: 32768}, most); got != (gpus <= want) {
				t.Errorf("%d GPUs of at most %d: %t", gpus, most, got)
			}
		}
	}
}

// TestTakesTheOnlyOne: one elastic GPU is enough.
func TestTakesTheOnlyOne(t *testing.T) {
	node := exampleNode(elasticV100S(0))
	if !node.TakesWhole(Waiting{GPUs: 1, VRAM: 32768}, 1) || node.TakesWhole(Waiting{GPUs: 1, VRAM: 32769}, 1) {
		t.Error("what the only elastic GPU takes")
	}
}

func TestForDevice(t *testing.T) {
	for _, c := range []struct {
		job  Waiting
		want bool
	}{
		{Waiting{GPUs: 1, VRAM: 1}, true},
		{Waiting{GPUs: 1, Require: "x"}, true},
		{Waiting{GPUs: 1, VRAM: 1, Require: "x"}, true},
		{Waiting{GPUs: 1}, false},
		{Waiting{VRAM: 1, Require: "x"}, false},
		{Waiting{GPUs: 2, VRAM: 1, Require: "x"}, false},
	} {
		if got := c.job.ForDevice(); got != c.want {
			t.Errorf("%+v: %t", c.job, got)
		}
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
	for open, want := range []string{"GPUAccept = false\n", "GPUAccept = true\n"} {
		if got := string(ElasticState{Open: open}.Ad()); !strings.Contains(got, want) {
			t.Errorf("%d are open: %s", open, got)
		}
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
