package gpu

import (
	"fmt"
	"strconv"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// MiB is an amount of memory in units of 1,048,576 bytes, the unit in which
// NVML reports, HTCondor counts and MPS limits memory.
type MiB int64

// BytesPerMiB converts between NVML's bytes and MiB.
const BytesPerMiB = 1 << 20

// MiBFromBytes rounds down: a part of a MiB is never offered.
func MiBFromBytes(n uint64) MiB { return MiB(n / BytesPerMiB) }

// Bytes is m in bytes.
func (m MiB) Bytes() uint64 { return uint64(m) * BytesPerMiB }

// Floor is the largest multiple of quantum that is not above m; quantum must
// be positive.
func (m MiB) Floor(quantum MiB) MiB { return m / quantum * quantum }

// Ceil is the smallest multiple of quantum that is not below m; quantum must
// be positive.
func (m MiB) Ceil(quantum MiB) MiB { return (m + quantum - 1) / quantum * quantum }

func (m MiB) String() string { return strconv.FormatInt(int64(m), 10) + " MiB" }

// ParseMiB reads a plain decimal number of MiB. It refuses signs, decimals and
// suffixes, because MPS reads "1.5G" and "1T" as 1 MiB without a word
// (measured on the control daemons of 535, 550 and 555).
func ParseMiB(s string) (MiB, error) {
	if s == "" || len(s) > 12 {
		return 0, fmt.Errorf("%q is not a number of MiB", foreign.Clip(s))
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%q is not a whole number of MiB without a unit (write 4096 for 4 GiB)", foreign.Clip(s))
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of MiB: %w", foreign.Clip(s), err)
	}
	return MiB(n), nil
}
