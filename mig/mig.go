// Package mig owns the layouts of MIG devices on a GPU: which fit, what each
// costs, which is best for what is wanted, and the steps that lead to it
// without touching an instance in use. It decides; it reads no hardware and
// knows neither MPS nor HTCondor. The nouns (chip, profile, place, layout,
// instance) are of package gpu. Start at Legal for the laws, Plan for the choice.
package mig

import "github.com/gpuslot/gpuslot/gpu"

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
	gpu.Place
	// Size is the number of units of the placement.
	Size int `json:"size"`
	// Name is the profile's name, for people.
	Name string `json:"name"`
	// Instance is the driver's id of the GPU instance to destroy.
	Instance int `json:"instance,omitempty"`
}
