// Package cgroup reads the slot of a job from the names that HTCondor gives cgroups.
package cgroup

import (
	"regexp"
	"strings"
)

// slotName is the slot in a cgroup's path, as HTCondor 23 to 25 builds
// it: ".../<EXECUTE with _ for />_slot1_2@host.slice/...scope" (23.9: without
// the suffix). Sites call slots otherwise (STARTD_RESOURCE_PREFIX), and the schedd
// those for files of several jobs "data1_2" (25.11 on).
var slotName = regexp.MustCompile(`_(` + Name + `@[A-Za-z0-9._@-]{1,250}?)(?:\.slice|\.scope)?(?:/|$)`)

// Name is the pattern of a slot's name, without the host: a prefix, the number of the
// slot, and that of a dynamic one. A prefix with other characters is not known.
const Name = `[A-Za-z]{1,32}[0-9]{1,6}(?:_[0-9]{1,6})?`

// Slot returns the slot, with its host, in a cgroup's path or a part of it;
// empty if there is none.
func Slot(path string) string {
	m := slotName.FindStringSubmatch(path)
	if m == nil {
		return ""
	}
	return m[1]
}

// SlotIn returns the slot, with its host, that the text of a /proc/<pid>/cgroup
// names; empty if it names none. It takes the first match of the unified hierarchy's
// path, then of any other: a job that may make cgroups of its own makes them further
// down. A path cannot hold a newline: the kernel refuses such a cgroup.
func SlotIn(text []byte) string {
	var other string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		id, rest, ok := strings.Cut(line, ":")
		_, cgroup, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		slot := Slot(cgroup)
		if slot != "" && id == "0" {
			return slot
		}
		if other == "" {
			other = slot
		}
	}
	return other
}
