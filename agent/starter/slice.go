package starter

import (
	"path"
	"strings"
)

// JobSlice is the slice of a job, above the cgroup that HTCondor made for it, from 24.8 on; false if
// there is none.
func JobSlice(leaf string) (string, bool) {
	slice := path.Dir(leaf)
	name, ok := strings.CutSuffix(slice, ".slice")
	return slice, ok && path.Base(leaf) == path.Base(name)+".scope"
}
