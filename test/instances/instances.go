// Package instances has one GPU for tests whose MIG instances are made as a driver makes
// them: with UUIDs of their own, nobody's by the driver's word.
package instances

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/gpu"
)

// GPU is a GPU that can be divided; it is a mig.Hardware. Its state may be changed while
// nothing uses it.
type GPU struct {
	// Happens is called with each change, "MIG mode", "create" or "destroy", after it.
	Happens func(string)
	// Changed is called with what an inventory then has; nil calls nothing.
	Changed func(enabled bool, devices []gpu.MIGDevice)

	mu   sync.Mutex
	S    gpu.MIGState
	made int
}

// New returns a GPU without instances, MIG mode off.
func New(u gpu.UUID, chip gpu.Chip) *GPU {
	return &GPU{
		// No GPU of this machine has that number.
		S:       gpu.MIGState{MIGGPU: gpu.MIGGPU{UUID: u, Chip: chip}, Capable: true, Minor: 200},
		Happens: func(string) {},
	}
}

// State returns the state as it is now.
func (g *GPU) State(context.Context, gpu.UUID) (gpu.MIGState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.S
	s.Instances = slices.Clone(s.Instances)
	return s, nil
}

// SetMode turns MIG mode on or off at once.
func (g *GPU) SetMode(_ context.Context, _ gpu.UUID, on bool) error {
	g.change(func() { g.S.Enabled, g.S.Pending = on, on })
	g.Happens("MIG mode")
	return nil
}

// Create makes an instance with one compute instance over all of it.
func (g *GPU) Create(_ context.Context, _ gpu.UUID, p gpu.Place, size int) error {
	g.change(func() {
		g.made++
		profile, _ := g.S.Chip.Profile(p.Profile)
		g.S.Instances = append(g.S.Instances, gpu.Instance{
			Place: p, Size: size, ID: g.made, Owner: gpu.Foreign, Compute: []gpu.ComputeInstance{{
				UUID:            gpu.UUID(fmt.Sprintf("MIG-%08d-0000-5000-8000-000000000000", g.made)),
				Multiprocessors: profile.Multiprocessors,
			}},
		})
	})
	g.Happens("create")
	return nil
}

// Destroy removes the instance at a place.
func (g *GPU) Destroy(_ context.Context, _ gpu.UUID, p gpu.Place) error {
	g.change(func() {
		g.S.Instances = slices.DeleteFunc(slices.Clone(g.S.Instances), func(i gpu.Instance) bool { return i.Place == p })
	})
	g.Happens("destroy")
	return nil
}

func (g *GPU) change(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
	if g.Changed != nil {
		g.Changed(g.S.Enabled, g.devices())
	}
}

// Devices are those that an inventory has now.
func (g *GPU) Devices() []gpu.MIGDevice {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.devices()
}

func (g *GPU) devices() []gpu.MIGDevice {
	devices := []gpu.MIGDevice{}
	for _, i := range g.S.Instances {
		p, _ := g.S.Chip.Profile(i.Profile)
		start := i.Start
		devices = append(devices, gpu.MIGDevice{
			Start: &start, UUID: i.Compute[0].UUID, Profile: p.Name, GPUInstance: i.ID, Memory: p.Memory,
			Multiprocessors: p.Multiprocessors,
		})
	}
	return devices
}
