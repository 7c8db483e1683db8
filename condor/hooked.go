package condor

import (
	"strconv"
	"strings"
)

// HasHook says whether the starter of a slot type runs the hook, by the local name
// that the startd gives it ("slot_type_107"): the types of GPUs and MIG devices do,
// those of no GPU, and of nobody else's making, do not.
func HasHook(localName string) bool {
	digits, ok := strings.CutPrefix(localName, "slot_type_")
	n, err := strconv.Atoi(digits)
	return ok && err == nil && (n >= sharedNumbers && n <= wholeNumber || n == elasticNumber)
}
