package nvml

import (
	"strconv"
	"strings"
)

// brokenProcessStruct names the drivers 535.43.02 to 535.86.05, whose process
// struct has one field more than their header says: with two processes or more
// the list is garbage (go-nvml issue 75).
func brokenProcessStruct(driver string) bool {
	major, rest, _ := strings.Cut(driver, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return major == "535" && err == nil && n >= 43 && n <= 86
}
