package closures

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
)

func TestNamed(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{
		{UUID: gpuA, Index: 0, PCI: "0000:10:00.0"},
		{UUID: gpuB, Index: 1, PCI: "0000:11:00.0"},
	}}
	for name, want := range map[string]int{
		"0": 0, "1": 1, string(gpuB): 1, "0000:11:00.0": 1, "00000000:11:00.0": 1, gpuA.Bare(): 0,
	} {
		found, err := Named(p, name)
		if err != nil || len(found) != 1 || found[0].UUID != p.GPUs[want].UUID {
			t.Errorf("%q: %v, %v", name, found, err)
		}
	}
	for name, says := range map[string]string{
		"": "there is no GPU", "7": "there is no GPU", "0000:12:00.0": "there is no GPU",
		"GPU-0": "begins the UUIDs of 2", "00000": "begins the UUIDs of 2",
	} {
		if _, err := Named(p, name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if found, err := Named(p, "all"); err != nil || len(found) != 2 {
		t.Errorf("all: %v, %v", found, err)
	}
}

// TestNamedMIG: the index of a GPU stands for all its MIG devices, a device's own UUID
// for itself.
func TestNamedMIG(t *testing.T) {
	other := part[:len(part)-1] + "1"
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: part, Parent: gpuA}, {UUID: other, Parent: gpuA}}}
	for name, want := range map[string]Target{
		"0":           {UUID: gpuA, Devices: []*plan.GPU{&p.GPUs[0], &p.GPUs[1]}},
		string(other): {UUID: other, Devices: []*plan.GPU{&p.GPUs[1]}},
	} {
		found, err := Named(p, name)
		if err != nil || len(found) != 1 || found[0].UUID != want.UUID || len(found[0].Devices) != len(want.Devices) {
			t.Errorf("%q: %v, %v", name, found, err)
		}
	}
}

// TestSingle: a name that stands for several GPUs or MIG devices is an error.
func TestSingle(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{
		{UUID: gpuA}, {UUID: part, Parent: gpuB, Index: 1}, {UUID: part[:len(part)-1] + "1", Parent: gpuB, Index: 1},
	}}
	for name, want := range map[string]*plan.GPU{
		"0": &p.GPUs[0], string(gpuA): &p.GPUs[0], string(part): &p.GPUs[1], "1": nil, "all": nil, "7": nil,
	} {
		g, err := Single(p, name)
		if g != want || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", name, g, err)
		}
	}
}
