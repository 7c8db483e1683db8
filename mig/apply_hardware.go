package mig

import (
	"context"
	"errors"

	"github.com/gpuslot/gpuslot/gpu"
)

// What a change of the hardware can end in; match with errors.Is.
var (
	// ErrInUse: somebody holds the instance or the GPU (NVML's IN_USE).
	ErrInUse = errors.New("in use by another client")
	// ErrNoRoom: the place, or an engine it needs, is taken (INSUFFICIENT_RESOURCES).
	ErrNoRoom = errors.New("insufficient resources")
	// ErrResetRequired: MIG mode waits for a reset of the GPU.
	ErrResetRequired = errors.New("the GPU needs a reset")
	// ErrNotCapable: the GPU, or its driver, has no MIG.
	ErrNotCapable = errors.New("no MIG on this GPU with this driver")
)

// State is what the driver says of one GPU, whoever made its instances: their
// owner is Foreign until a Book says otherwise.
type State struct {
	GPU
	// Capable: the GPU and its driver have MIG.
	Capable bool `json:"capable"`
	// Enabled is the MIG mode in force, Pending the one after a reset.
	Enabled bool `json:"enabled"`
	Pending bool `json:"pending"`
	// Minor is the number of /dev/nvidiaN, which names the GPU's capabilities; -1 is not known.
	Minor int `json:"minor"`
	// Device is the PCI device and vendor, as mig-parted filters by.
	Device PCIDevice `json:"device"`
	// Holders use the GPU as a whole, not one instance of it.
	Holders []Holder `json:"holders,omitempty"`
}

// Hardware is one node's GPUs as the executor needs them: the driver through
// NVML, and a fake in tests. Every call has a deadline of its own besides ctx.
type Hardware interface {
	// State reads one GPU anew; nothing is cached over a change.
	State(ctx context.Context, u gpu.UUID) (State, error)
	// SetMode sets MIG mode. It may answer ErrInUse and ErrResetRequired; the
	// mode is then pending where the driver keeps it.
	SetMode(ctx context.Context, u gpu.UUID, enabled bool) error
	// Create makes the GPU instance at this place and in it one compute instance
	// with all its multiprocessors. What exists of both is kept. If the compute
	// instance cannot be made, a GPU instance made by this call goes again.
	Create(ctx context.Context, u gpu.UUID, p Place, size int) error
	// Destroy removes the instance at this place, its compute instances first;
	// it succeeds if there is none.
	Destroy(ctx context.Context, u gpu.UUID, p Place) error
}

// Whole tells whether the instance has its one compute instance with all its
// multiprocessors; one that lacks it was left half made, one with others was
// divided by somebody.
func (s State) Whole(i Instance) bool {
	if len(i.Compute) != 1 {
		return false
	}
	p, known := s.Chip.Profile(i.Profile)
	sms := i.Compute[0].Multiprocessors
	return !known || p.Multiprocessors == 0 || sms == 0 || sms == p.Multiprocessors
}

// at finds the instance at a place.
func (s State) at(p Place) (Instance, bool) {
	for _, i := range s.Instances {
		if i.Place == p {
			return i, true
		}
	}
	return Instance{}, false
}

// Wanted makes of a planned layout what Apply is to reach: without foreign
// instances that are not one whole device, which nobody but their maker mends.
func (s State) Wanted(l Layout) Wanted {
	w := Wanted{Enabled: true}
	for _, p := range l {
		if i, there := s.at(p); !there || i.Owner == Ours || s.Whole(i) {
			w.Layout = append(w.Layout, p)
		}
	}
	return w
}
