// Package mig owns the layouts of MIG devices on a GPU: which fit, what each
// costs, which is best for what is wanted, and the steps that lead to it
// without touching an instance in use. It decides; it reads no hardware and
// knows neither MPS nor HTCondor. Start at Chip for the laws, Plan for the
// choice.
package mig

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// ProfileID is the driver's number of a GPU instance profile, which creating
// takes and nvidia-smi mig -lgip prints. It is not the NVML_GPU_INSTANCE_PROFILE_*
// enumerator, and differs by chip: 14 is 2g on A100 and 1g on A30.
type ProfileID int

// Engines are the fixed-function engines of a profile, in NVML's fields.
type Engines struct {
	Decoders int `json:"decoders,omitempty"`
	Encoders int `json:"encoders,omitempty"`
	JPEG     int `json:"jpeg,omitempty"`
	OFA      int `json:"ofa,omitempty"`
}

// Profile is one kind of GPU instance, as the driver describes it
// (nvmlGpuInstanceProfileInfo_t and nvmlDeviceGetGpuInstancePossiblePlacements).
type Profile struct {
	ID ProfileID `json:"id"`
	// Name is as nvidia-smi prints it, without "MIG ": "1g.5gb+me".
	Name string `json:"name"`
	// Slices is the number of compute slices.
	Slices int `json:"slices"`
	// Starts are the units of the grid where an instance can begin, ascending.
	Starts []int `json:"starts"`
	// Size is the number of units that an instance takes.
	Size int `json:"size"`
	// Multiprocessors is the number of SMs; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// Memory is the instance's device memory; 0 means not known.
	Memory  gpu.MiB `json:"memory_mib,omitempty"`
	Engines Engines `json:"engines"`
	// Max is the largest number of such instances on one GPU.
	Max int `json:"max"`
}

// Chip is what the driver tells of one model of GPU. On a node it is filled
// from NVML's answers, which win; elsewhere from the published tables (Model).
// Units, compute slices and engines follow from the profiles.
type Chip struct {
	// Model names the chip for people: the product, or a key of Models.
	Model string `json:"model"`
	// Capability tells the generations apart: 8.0 is the one that loses SMs by
	// MIG mode alone and needs a reset to change it.
	Capability gpu.ComputeCapability `json:"compute_capability"`
	// Multiprocessors is the number of SMs with MIG mode off; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// Memory is the device memory with MIG mode off; 0 means not known.
	Memory gpu.MiB `json:"memory_mib,omitempty"`
	// Profiles in any order, each id once.
	Profiles []Profile `json:"profiles"`
	// Apart are pairs of profiles that the driver refuses together although they fit.
	Apart [][2]ProfileID `json:"apart,omitempty"`
}

// Profile finds a profile by its id.
func (c Chip) Profile(id ProfileID) (Profile, bool) {
	for _, p := range c.Profiles {
		if p.ID == id {
			return p, true
		}
	}
	return Profile{}, false
}

// Place is a profile at a start: one position that an instance can have. With
// the GPU's UUID it is the stable name of a MIG device, whose own UUID may
// come again for another instance or change.
type Place struct {
	Profile ProfileID `json:"profile"`
	Start   int       `json:"start"`
}

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Start, b.Start))
}

// Layout is a set of places on one GPU, ordered by profile, then start.
type Layout []Place

// NewLayout sorts the places.
func NewLayout(places ...Place) Layout {
	l := slices.Clone(places)
	slices.SortFunc(l, comparePlaces)
	return l
}

// Contains tells whether the place is one of the layout's.
func (l Layout) Contains(p Place) bool {
	_, found := slices.BinarySearchFunc(l, p, comparePlaces)
	return found
}

// Equal tells whether both have the same places.
func (l Layout) Equal(m Layout) bool { return slices.Equal(l, m) }

// Without are the places of l that m lacks.
func (l Layout) Without(m Layout) Layout {
	var rest Layout
	for _, p := range l {
		if !m.Contains(p) {
			rest = append(rest, p)
		}
	}
	return rest
}

// Compare orders layouts place by place; a layout stands before its extensions.
func (l Layout) Compare(m Layout) int { return slices.CompareFunc(l, m, comparePlaces) }

// Owner tells who made an instance.
type Owner string

// Ours was made by gpuslot, which may destroy it when idle; Foreign was not and
// is left alone.
const (
	Ours    Owner = "ours"
	Foreign Owner = "foreign"
)

// Holder is somebody who uses an instance.
type Holder struct {
	// PID is 0 where no process is known, as with a claimed but idle slot.
	PID int `json:"pid,omitempty"`
	// Command is the process's name.
	Command string `json:"command,omitempty"`
	// Unit is its systemd unit.
	Unit string `json:"unit,omitempty"`
	// Slot is the HTCondor slot that claims the instance.
	Slot string `json:"slot,omitempty"`
	// Ours says that gpuslot started it and may stop it, as the control daemon
	// of an instance; such a holder does not make the instance busy.
	Ours bool `json:"ours,omitempty"`
}

// ComputeInstance is one compute instance of a GPU instance.
type ComputeInstance struct {
	ID int `json:"id"`
	// UUID is the MIG device's ("MIG-…"), valid until the instance is destroyed.
	UUID gpu.UUID `json:"uuid,omitempty"`
	// Multiprocessors is the number of its SMs; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
}

// Instance is one GPU instance that exists.
type Instance struct {
	Place
	// Size is the number of units, as the driver reports the placement.
	Size int `json:"size"`
	// ID is the driver's id of the GPU instance; it is reused.
	ID int `json:"id"`
	// Compute are its compute instances; without one no job can use it.
	Compute []ComputeInstance `json:"compute,omitempty"`
	Owner   Owner             `json:"owner"`
	// Holders are all known users, our own control daemon included.
	Holders []Holder `json:"holders,omitempty"`
}

// UUID is that of the MIG device if there is exactly one.
func (i Instance) UUID() (gpu.UUID, bool) {
	if len(i.Compute) != 1 {
		return "", false
	}
	return i.Compute[0].UUID, i.Compute[0].UUID != ""
}

// Busy tells whether anybody but gpuslot itself uses the instance.
func (i Instance) Busy() bool {
	return slices.ContainsFunc(i.Holders, func(h Holder) bool { return !h.Ours })
}

// Pinned tells whether the instance must stay: it is busy, or not known as ours.
func (i Instance) Pinned() bool { return i.Busy() || i.Owner != Ours }

// GPU is one GPU in MIG mode as it is now.
type GPU struct {
	UUID gpu.UUID `json:"uuid"`
	// Index is NVML's, for people.
	Index     int        `json:"index"`
	Chip      Chip       `json:"chip"`
	Instances []Instance `json:"instances,omitempty"`
}

// Layout is where the instances are now.
func (g GPU) Layout() Layout {
	places := make([]Place, len(g.Instances))
	for i, in := range g.Instances {
		places[i] = in.Place
	}
	return NewLayout(places...)
}

// Verb is what a step does.
type Verb string

// Destroy removes an idle instance of ours with its compute instances; Create
// makes one at an explicit placement.
const (
	Destroy Verb = "destroy"
	Create  Verb = "create"
)

// Step is one change of one GPU. All destroys of a GPU stand before its creates.
type Step struct {
	Verb Verb     `json:"verb"`
	GPU  gpu.UUID `json:"gpu"`
	Place
	// Size is the number of units of the placement.
	Size int `json:"size"`
	// Name is the profile's name, for people.
	Name string `json:"name"`
	// Instance is the driver's id of the GPU instance to destroy.
	Instance int `json:"instance,omitempty"`
}
