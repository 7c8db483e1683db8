package plan

import (
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/mps"
)

// ClientCeiling is how many MPS clients of one GPU the plan may count on for a
// driver's CUDA version ("12.4", empty if unknown): what mps.ClientCeiling says,
// the lower figure if that is nothing, less one for the site's tools.
func ClientCeiling(cuda string) int {
	const unknown, kept = 48, 1
	n, known := mps.ClientCeiling(cuda)
	if !known {
		n = unknown
	}
	return n - kept
}

// driverMajor is the branch of a driver version ("550.163.01"); 0 if unknown.
func driverMajor(driver string) int {
	major, _ := leadingVersion(driver)
	return major
}

// leadingVersion reads "major.minor…"; what is not a number counts as 0.
func leadingVersion(s string) (major, minor int) {
	a, rest, _ := strings.Cut(s, ".")
	b, _, _ := strings.Cut(rest, ".")
	return number(a), number(b)
}

func number(s string) int {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
