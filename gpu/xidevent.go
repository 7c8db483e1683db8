package gpu

import (
	"fmt"
	"time"
)

// EventKind is what a GPU can tell by itself, at the moment it happens.
type EventKind string

// The kinds that gpuslot listens to, by the names of nvml.h.
const (
	// EventXID: nvmlEventTypeXidCriticalError.
	EventXID EventKind = "xid"
	// EventSingleBit: nvmlEventTypeSingleBitEccError, corrected.
	EventSingleBit EventKind = "single-bit-ecc"
	// EventDoubleBit: nvmlEventTypeDoubleBitEccError, not corrected. Xid 48, 94
	// or 95 comes with it and says what it means.
	EventDoubleBit EventKind = "double-bit-ecc"
	// EventUnavailable: nvmlEventTypeGpuUnavailableError.
	EventUnavailable EventKind = "gpu-unavailable"
	// EventRecoveryAction: nvmlEventTypeGpuRecoveryAction; the next Condition
	// has the action.
	EventRecoveryAction EventKind = "recovery-action"
	// EventLost: NVML answers GPU_IS_LOST. Told once until the GPU is back.
	EventLost EventKind = "lost"
)

// NoInstance stands where an event names no MIG instance.
const NoInstance = -1

// Event is one thing that happened to one GPU.
type Event struct {
	GPU  UUID
	Kind EventKind
	// XID is the driver's error number if Kind is EventXID, or UnknownXID.
	XID int
	// GPUInstance and ComputeInstance are MIG ids, or NoInstance.
	GPUInstance, ComputeInstance int
	// Time is when gpuslot heard of it; NVML tells no time.
	Time time.Time
}

// RecoveryAction is what the driver says a GPU needs (nvml.h,
// nvmlDeviceGpuRecoveryAction_t; R565 and newer).
type RecoveryAction int

// The recovery actions.
const (
	RecoveryNone RecoveryAction = iota
	RecoveryGPUReset
	RecoveryNodeReboot
	RecoveryDrainP2P
	RecoveryDrainAndReset
	RecoveryIMEXDomain
	RecoveryBusReset
	RecoverySystemReboot
)

// String is the action in the words of nvml.h.
func (r RecoveryAction) String() string {
	names := [...]string{"none", "GPU reset", "node reboot", "drain P2P", "drain P2P and GPU reset", "recover IMEX domain",
		"PCIe bus reset", "system reboot"}
	if r < 0 || int(r) >= len(names) {
		return fmt.Sprintf("recovery action %d", int(r))
	}
	return names[r]
}

// Do is what the operator has to do for it.
func (r RecoveryAction) Do() string {
	switch r {
	case RecoveryNone:
		return "nothing"
	case RecoveryGPUReset, RecoveryDrainAndReset, RecoveryBusReset:
		return doReset
	case RecoveryNodeReboot, RecoverySystemReboot:
		return doReboot
	case RecoveryDrainP2P, RecoveryIMEXDomain:
		return "end the jobs that use several GPUs together, and see nvidia-smi -q for the GPU Recovery Action"
	}
	return "see nvidia-smi -q for the GPU Recovery Action"
}

// Condition is what a GPU says when it is asked. What the GPU or the driver
// does not have is nil.
type Condition struct {
	GPU UUID
	// Lost: it is there no more, or answers GPU_IS_LOST.
	Lost bool
	// Err says why it could not be read otherwise; then nothing below is known.
	Err error
	// Uncorrected ECC errors since the driver was loaded or the GPU reset, and
	// over its life.
	UncorrectedVolatile, UncorrectedAggregate *uint64
	// Rows of memory wait for a reset to be remapped; one could not be remapped
	// ever (Ampere and newer).
	RowsPending, RowFailed *bool
	// PagesPending: pages wait for a reset to be retired (before Ampere).
	PagesPending *bool
	// Recovery is the driver's word on what the GPU needs.
	Recovery *RecoveryAction
	// Energy in millijoules since the driver was loaded: less than before says
	// that it was loaded again.
	Energy *uint64
}
