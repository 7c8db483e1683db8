package gpu

import "fmt"

// XIDClass says whose matter an XID is.
type XIDClass string

// The classes. Only the driver knows for sure what a GPU needs: where it tells
// its recovery action (RecoveryAction, R565 and newer), that comes first.
const (
	// XIDApplication: a program's fault, or one that ends with the program; the
	// GPU stays healthy.
	XIDApplication XIDClass = "application"
	// XIDNeedsReset: nothing runs well there until the GPU is reset.
	XIDNeedsReset XIDClass = "needs-reset"
	// XIDBroken: somebody has to go to the machine.
	XIDBroken XIDClass = "broken"
	// XIDInformation: the GPU goes on; worth a count.
	XIDInformation XIDClass = "information"
	// XIDUnknown: NVIDIA publishes no action for it, or it is none of ours.
	XIDUnknown XIDClass = "unknown"
)

// XIDReach says whom else on the GPU an XID ends.
type XIDReach string

// The reaches. NVIDIA MPS documentation, "Fault containment": a fatal fault is
// reported to every client on the GPUs that it touched.
const (
	// ReachNobody: it ends no process.
	ReachNobody XIDReach = "nobody"
	// ReachProcess: the process that it is about, MPS client or not.
	ReachProcess XIDReach = "process"
	// ReachClients: that process and, under MPS, every client on the same GPU.
	ReachClients XIDReach = "clients"
	// ReachGPU: everything on the GPU.
	ReachGPU XIDReach = "gpu"
)

// XID is what is known of one of the driver's error numbers.
type XID struct {
	Number int
	// Name is NVIDIA's; empty if it has none.
	Name  string
	Class XIDClass
	Reach XIDReach
	// ByAction: NVIDIA leaves what the GPU needs to a workflow, or names nothing. Where
	// the driver reports its recovery action, that alone closes the GPU; else Class does.
	ByAction bool
	// Do is what the operator has to do.
	Do string
	// Source names the evidence: "catalog" is NVIDIA's Xid Catalog
	// (docs.nvidia.com/deploy/xid-errors, for Ampere and newer) with its bucket
	// of immediate actions.
	Source string
}

// UnknownXID is the number that NVML gives where it cannot tell it (nvml.h).
const UnknownXID = 999

// XIDByNumber is what is known of an XID; of class XIDUnknown if nothing is.
func XIDByNumber(n int) XID {
	if x, ok := xids[n]; ok {
		x.Number = n
		return x
	}
	for _, r := range xidRanges {
		if r.first <= n && n <= r.last {
			x := r.xid
			x.Number = n
			return x
		}
	}
	return XID{Number: n, Class: XIDUnknown, Do: doLook, Source: "not in NVIDIA's catalog, or unused there"}
}

// String is "Xid 79 (GPU has fallen off the bus)".
func (x XID) String() string {
	if x.Name == "" {
		return fmt.Sprintf("Xid %d", x.Number)
	}
	return fmt.Sprintf("Xid %d (%s)", x.Number, x.Name)
}
