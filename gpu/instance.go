package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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

// String is the holder in a few words: "slot1_2 (pid 4711 python3, job.service)".
func (h Holder) String() string {
	var process []string
	if h.PID != 0 {
		process = append(process, strings.TrimSpace(fmt.Sprintf("pid %d %s", h.PID, h.Command)))
	}
	if h.Unit != "" {
		process = append(process, h.Unit)
	}
	inner := strings.Join(process, ", ")
	switch {
	case h.Slot == "" && inner == "":
		return "somebody unknown"
	case h.Slot == "":
		return inner
	case inner == "":
		return h.Slot
	}
	return h.Slot + " (" + inner + ")"
}

// ComputeInstance is one compute instance of a GPU instance.
type ComputeInstance struct {
	ID int `json:"id"`
	// UUID is the MIG device's ("MIG-…"), valid until the instance is destroyed.
	UUID UUID `json:"uuid,omitempty"`
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
func (i Instance) UUID() (UUID, bool) {
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

// MIGGPU is one GPU in MIG mode as it is now.
type MIGGPU struct {
	UUID UUID `json:"uuid"`
	// Index is NVML's, for people.
	Index     int        `json:"index"`
	Chip      Chip       `json:"chip"`
	Instances []Instance `json:"instances,omitempty"`
}

// Names are all by which a job may have an instance: the PlaceID of its place, and its devices' UUIDs.
func (g MIGGPU) Names(i Instance) []UUID {
	names := []UUID{PlaceID(g.UUID, g.Chip.FormatPlace(i.Place))}
	for _, c := range i.Compute {
		if c.UUID != "" {
			names = append(names, c.UUID)
		}
	}
	return names
}

// Layout is where the instances are now.
func (g MIGGPU) Layout() Layout {
	places := make([]Place, len(g.Instances))
	for i, in := range g.Instances {
		places[i] = in.Place
	}
	return NewLayout(places...)
}

// Why a change of MIG mode or of an instance fails; match with errors.Is.
var (
	// ErrInUse: somebody holds the instance or the GPU (NVML's IN_USE).
	ErrInUse = errors.New("in use by another client")
	// ErrNoRoom: the place, or an engine it needs, is taken (INSUFFICIENT_RESOURCES).
	ErrNoRoom = errors.New("insufficient resources")
	// ErrResetRequired: MIG mode waits for a reset of the GPU.
	ErrResetRequired = errors.New("the GPU needs a reset")
	// ErrNoMIG: the GPU or its driver does not have MIG.
	ErrNoMIG = errors.New("no MIG on this GPU with this driver")
)

// MIGState is what the driver says of one GPU, whoever made its instances: their
// owner is Foreign until the journal of package mig says otherwise.
type MIGState struct {
	MIGGPU
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

// Whole tells whether the instance has its one compute instance with all its
// multiprocessors; one that lacks it was left half made, one with others was
// divided by somebody.
func (s MIGState) Whole(i Instance) bool {
	if len(i.Compute) != 1 {
		return false
	}
	p, known := s.Chip.Profile(i.Profile)
	sms := i.Compute[0].Multiprocessors
	return !known || p.Multiprocessors == 0 || sms == 0 || sms == p.Multiprocessors
}

// At finds the instance at a place.
func (s MIGState) At(p Place) (Instance, bool) {
	for _, i := range s.Instances {
		if i.Place == p {
			return i, true
		}
	}
	return Instance{}, false
}
