package packages

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// snapshot is what a package may have changed.
type snapshot map[string][]string

// volatile is what changes by itself on a node that runs HTCondor and apt.
var volatile = regexp.MustCompile(`^/(var/(lib/(apt|dpkg|condor)|log|spool|cache|tmp|lock)|run/(systemd|condor|gpuslot-sim|log|lock|dbus|udev)|etc/(\.pwd\.lock|(passwd|group|shadow|gshadow)-|ld\.so\.cache)|root|home)[ /]`)

func (l *life) snapshot(ctx context.Context) snapshot {
	l.t.Helper()
	lines := func(command string) []string {
		all := strings.Split(l.sh(ctx, command), "\n")
		slices.Sort(all)
		return all
	}
	files := slices.DeleteFunc(lines(`find /etc /usr /var /run -xdev ! -type d -printf '%p %m %u %s %l\n' 2>/dev/null || :`), func(s string) bool { return volatile.MatchString(s) })
	return snapshot{
		"files": files,
		// Others: dpkg takes along those that no package is left to own.
		"directories":  slices.DeleteFunc(lines(`find /etc /usr /var /run -xdev -type d -name '*gpuslot*' -printf '%p/ %m %u\n' 2>/dev/null || :`), func(s string) bool { return volatile.MatchString(s) }),
		"HTCondor":     lines("condor_config_val -dump | grep -vE '^#|^P?PID = '"),
		"slots":        lines(`condor_status -af Name SlotType Cpus Memory GPUs`),
		"compute mode": lines("simgpu show --json | tr , '\n' | grep compute_mode"),
		"units":        lines("systemctl list-units --all --plain --no-legend --type=service,socket | awk '/gpuslot/ {print $1}'"),
		"accounts":     lines("cat /etc/passwd /etc/group"),
		"logs":         lines("find /var/log/journal /run/log/journal -name '*gpuslot*' 2>/dev/null || :"),
		"package":      lines("dpkg-query -W -f '${Status}\n' gpuslot 2>/dev/null || :"),
	}
}

func compare(t *testing.T, before, after snapshot) {
	t.Helper()
	for what, was := range before {
		for _, line := range was {
			if !slices.Contains(after[what], line) {
				t.Errorf("%s: gone or changed: %s", what, strconv.Quote(line))
			}
		}
		for _, line := range after[what] {
			if !slices.Contains(was, line) {
				t.Errorf("%s: new: %s", what, strconv.Quote(line))
			}
		}
	}
}
