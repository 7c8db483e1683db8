package capability

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/mps"
)

// Controllers answers whether the kernel has what the driver needs to
// hold a cgroup's VRAM to a limit: cgroup v2 with the controller dmem (Linux
// 6.14 on), or misc, which EL9 has. Sys is /sys.
func Controllers(sys fs.FS) mps.Answer {
	b, err := fs.ReadFile(sys, "fs/cgroup/cgroup.controllers")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return mps.Answer{Known: true, How: "this machine does not run on cgroup v2 alone"}
	case err != nil:
		return mps.Answer{How: err.Error()}
	}
	have := strings.Fields(string(b))
	for _, c := range []string{"dmem", "misc"} {
		if slices.Contains(have, c) {
			return mps.Answer{Known: true, Has: true, How: "NVML has the call, and cgroup v2 the controller " + c}
		}
	}
	return mps.Answer{Known: true, How: "cgroup v2 has neither the controller dmem nor misc"}
}
