package usage

import (
	"regexp"
	"strings"
)

// containerID finds the id in a cgroup's path: "/docker/<id>" (cgroupfs driver),
// "/system.slice/docker-<id>.scope" (systemd driver), and podman's "libpod-<id>".
var containerID = regexp.MustCompile(`(?:/docker/|/docker-|/libpod-)([0-9a-f]{64})(?:\.scope)?(?:/|$)`)

// ContainerOf reads the id of the docker or podman container from
// /proc/<pid>/cgroup, of cgroup v1, v2 and both at once. HTCondor's docker
// universe puts a job there, and not below the cgroup of its slot: the slot is
// that of the starter whose job the container's first process is. A job can
// make cgroups below its own only, so the first id of a path counts.
func ContainerOf(cgroup []byte) (id string, ok bool) {
	for line := range strings.Lines(string(cgroup)) {
		_, rest, okID := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, okPath := strings.Cut(rest, ":")
		if !okID || !okPath {
			continue
		}
		if m := containerID.FindStringSubmatch(path); m != nil {
			return m[1], true
		}
	}
	return "", false
}
