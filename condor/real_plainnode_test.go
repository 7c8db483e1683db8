package condor

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// A plain node takes what its cards hold, and leaves the site's START alone.
func TestRealPlainNode(t *testing.T) {
	h := realHTCondor(t)
	text, err := PlainNode("0.1.0", gpu.Inventory{GPUs: []gpu.GPU{
		{UUID: uuid(0), Name: "NVIDIA A100-SXM4-40GB", Memory: 40960}, {UUID: uuid(1), Name: "Tesla V100S-PCIE-32GB", Memory: 32768},
	}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plain-node.conf", text)
	h.write(t, "config.d/10-site.conf", "START = TARGET.Owner =!= \"mallory\"\n")
	h.write(t, "config.d/90-vram.conf", string(text))
	if got := h.value(t, "MACHINE_RESOURCE_VRAM"); got != "73728" {
		t.Errorf("VRAM is %s", got)
	}
	for name, c := range map[string]struct{ job, want string }{
		"a GPU and no VRAM":          {oneJob, "true"},
		"a share of one":             {fourGB, "true"},
		"all of one":                 {oneJob + "RequestVRAM = 32768\n", "true"},
		"more than the smallest has": {oneJob + "RequestVRAM = 32769\n", "false"},
		"two":                        {twoGPUs + "RequestVRAM = 65536\n", "true"},
		"no GPU":                     {cpuOnly, "true"},
		"no GPU, and none wanted":    {cpuOnly + "RequestVRAM = 0\n", "true"},
		"VRAM without a GPU":         {cpuOnly + "RequestVRAM = 4096\n", "false"},
		"less than nothing":          {oneJob + "RequestVRAM = -8\n", "false"},
		"that without a GPU":         {cpuOnly + "RequestVRAM = -8\n", "false"},
		"a fraction":                 {oneJob + "RequestVRAM = 4000.5\n", "false"},
		"whom the site refuses":      {"Owner = \"mallory\"\nRequestGPUs = 1\nRequestVRAM = 4096\n", "false"},
	} {
		if got := h.evaluate(t, "Name = \"s\"\n", c.job, h.value(t, "START")); got != c.want {
			t.Errorf("%s: START is %s, want %s", name, got, c.want)
		}
	}
}

func TestPlainNodeWithoutGPUs(t *testing.T) {
	if _, err := PlainNode("0.1.0", gpu.Inventory{}); err == nil {
		t.Error("a VRAM resource for a node without GPUs")
	}
}
