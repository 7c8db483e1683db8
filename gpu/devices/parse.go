package devices

import (
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// parseMajor finds the major number of nvidia-caps among the character devices
// of /proc/devices. A name longer than it is another's: nvidia-caps-imex-channels.
func parseMajor(text []byte) (uint32, bool) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "Block devices:" {
			break
		}
		number, name, ok := strings.Cut(line, " ")
		if !ok || name != "nvidia-caps" {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, 12); err == nil && n > 0 {
			return uint32(n), true
		}
	}
	return 0, false
}

// maxMinorBits is the width of the kernel's minor numbers.
const maxMinorBits = 20

// parseMinors reads /proc/driver/nvidia-caps/mig-minors: "gpu0/gi1/ci0/access 13".
// The driver lists all that there can ever be, not those that exist now
// (nv-caps.c of open-gpu-kernel-modules).
func parseMinors(text []byte) map[string]uint32 {
	minors := map[string]uint32{}
	for line := range strings.Lines(string(text)) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || name == "" {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, maxMinorBits); err == nil {
			minors[name] = uint32(n)
		}
	}
	return minors
}

// parseInformation reads /proc/driver/nvidia/gpus/<bus id>/information, as
// HTCondor does: "GPU UUID: 	 GPU-…" and "Device Minor: 	 0".
func parseInformation(text []byte) (u gpu.UUID, minor int, ok bool) {
	minor = -1
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "GPU UUID":
			id, err := gpu.ParseUUID(value)
			if err != nil || id.IsMIG() {
				return "", 0, false // the driver has not asked the GPU yet: "GPU-????????-…"
			}
			u = id
		case "Device Minor":
			n, err := strconv.ParseUint(value, 10, maxMinorBits)
			if err != nil {
				return "", 0, false
			}
			minor = int(n)
		}
	}
	return u, minor, u != "" && minor >= 0
}

// parseNode reads the file dev of a device in /sys: "226:128".
func parseNode(text []byte) (Node, bool) {
	first, second, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	major, no := strconv.ParseUint(first, 10, 12)
	minor, err := strconv.ParseUint(second, 10, maxMinorBits)
	return Node{uint32(major), uint32(minor)}, no == nil && err == nil
}
