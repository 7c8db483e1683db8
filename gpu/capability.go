package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ComputeCapability is CUDA's version of a GPU's architecture, such as 7.0.
type ComputeCapability struct{ Major, Minor int }

// Volta is the first architecture whose MPS clients own their address space
// and whose pinned memory can be limited (NVIDIA MPS documentation).
var Volta = ComputeCapability{7, 0}

// ParseComputeCapability reads "major.minor".
func ParseComputeCapability(s string) (ComputeCapability, error) {
	major, minor, ok := strings.Cut(s, ".")
	a, errA := strconv.ParseUint(major, 10, 8)
	b, errB := strconv.ParseUint(minor, 10, 8)
	if !ok || errA != nil || errB != nil || a == 0 {
		return ComputeCapability{}, fmt.Errorf("compute capability %q is not of the form 7.0", foreign.Clip(s))
	}
	return ComputeCapability{int(a), int(b)}, nil
}

// Before reports whether c is older than o.
func (c ComputeCapability) Before(o ComputeCapability) bool {
	return c.Major < o.Major || c.Major == o.Major && c.Minor < o.Minor
}

func (c ComputeCapability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// MarshalText prints the form that ParseComputeCapability reads.
func (c ComputeCapability) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText lets encoding/json read a capability strictly.
func (c *ComputeCapability) UnmarshalText(b []byte) (err error) {
	*c, err = ParseComputeCapability(string(b))
	return err
}
