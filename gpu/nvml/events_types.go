package nvml

import "github.com/gpuslot/gpuslot/gpu"

// Listening says what a GPU tells by itself, or why it tells nothing.
type Listening struct {
	GPU gpu.UUID
	// Kinds are the events that this card has, and is listened to for.
	Kinds []gpu.EventKind
	// Err is why it is not listened to (any more); ErrNotSupported if it has no
	// events. It is tried again.
	Err error
}
