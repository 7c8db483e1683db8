package plan

import (
	"strconv"
	"strings"
)

// ClientCeiling is how many MPS clients of one GPU the plan may count on for a
// driver's CUDA version ("12.4", empty if unknown): NVIDIA documents 48 CUDA
// contexts per device, 60 from CUDA 13.1; one is kept for the site's tools.
func ClientCeiling(cuda string) int {
	const before, from131, kept = 48, 60, 1
	major, minor := leadingVersion(cuda)
	if major > 13 || major == 13 && minor >= 1 {
		return from131 - kept
	}
	return before - kept
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
