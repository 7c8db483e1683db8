package gpu

import (
	"fmt"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ComputeMode says which processes may create a CUDA context on a GPU.
type ComputeMode string

// NVML's compute modes. EXCLUSIVE_THREAD is gone from current drivers.
const (
	ComputeModeDefault          ComputeMode = "default"
	ComputeModeExclusiveProcess ComputeMode = "exclusive-process"
	ComputeModeProhibited       ComputeMode = "prohibited"
)

// ParseComputeMode reads one of NVML's compute modes.
func ParseComputeMode(s string) (ComputeMode, error) {
	switch m := ComputeMode(s); m {
	case ComputeModeDefault, ComputeModeExclusiveProcess, ComputeModeProhibited:
		return m, nil
	}
	return "", fmt.Errorf("compute mode %q is none of default, exclusive-process, prohibited", foreign.Clip(s))
}

// UnmarshalText lets encoding/json read a compute mode strictly.
func (m *ComputeMode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseComputeMode(string(b))
	return err
}
