package mps

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// Setting is one limit of a Wanted, fit for a metric label.
type Setting string

// The settings that are compared.
const (
	SettingLimit      Setting = "memory-limit"
	SettingPercentage Setting = "thread-percentage"
)

// Difference is a setting that reads otherwise than wanted. Up to driver 535
// any account that reaches the daemon can be the cause.
type Difference struct {
	Setting Setting
	// Read and Want are in the daemon's words; Read is empty for no limit at all.
	Read string
	Want string
}

func (d Difference) String() string {
	return fmt.Sprintf("its %s reads %s, want %s", d.Setting, printable(d.Read), d.Want)
}

// compare reads the two limits of a daemon or a server. The daemon prints
// whole GiB from 1 GiB up, cut, not rounded, and percentages to one decimal.
func compare(w Wanted, limit, percentage string) []Difference {
	var differs []Difference
	if want := printedLimit(w.Limit); limit != want {
		differs = append(differs, Difference{SettingLimit, limit, want})
	}
	p, err := parsePercentage(percentage)
	if err != nil || math.Abs(p-w.ThreadPercentage) > 0.0501 {
		want := strconv.FormatFloat(w.ThreadPercentage, 'f', 1, 64)
		differs = append(differs, Difference{SettingPercentage, percentage, want})
	}
	return differs
}

// ReadBack says what a reply shows of the daemon's limit: exactly this below 1 GiB, else any
// limit up to the next whole GiB.
func (w Wanted) ReadBack() (least, most gpu.MiB) {
	if w.Limit < 1024 {
		return w.Limit, w.Limit
	}
	return w.Limit.Floor(1024), w.Limit.Floor(1024) + 1023
}

// LoggedLimit finds the limit that a server wrote to the log at its start, to the byte.
func LoggedLimit(lines []string, server int) (limit gpu.Bytes, ok bool) {
	for _, line := range lines {
		if e, is := ParseEvent(line); is && e.Kind == ServerLimited && e.Writer == server {
			limit, ok = e.Bytes, true
		}
	}
	return limit, ok
}

func (d *Daemon) wrongLimits(differs []Difference) error {
	texts := make([]string, len(differs))
	for i, x := range differs {
		texts[i] = x.String()
	}
	return &Error{GPU: d.gpu, Fault: WrongLimits, Differs: differs,
		Text: strings.Join(texts, ", ") + ": gpuslot sets them again; if it comes back, somebody else sets them"}
}

// Differs are the server's own limits that are not those wanted: its next
// client gets them. None are known of a server that does not answer; one that
// is starting takes the daemon's when it is ready.
func (s Server) Differs(w Wanted) []Difference {
	if !s.Answers() {
		return nil
	}
	return compare(w, s.Limit, s.ThreadPercentage)
}

func staleUnder(w Wanted, servers []Server) []int {
	var stale []int
	for _, s := range servers {
		if len(s.Differs(w)) > 0 {
			stale = append(stale, s.PID)
		}
	}
	return stale
}

// SetServers gives running servers the wanted limits and proves the daemon
// again. They act on later clients of those servers; clients that are there
// keep theirs until they end.
func (d *Daemon) SetServers(ctx context.Context, w Wanted, servers ...int) (Checked, error) {
	if err := d.valid(w); err != nil {
		return Checked{}, err
	}
	var commands []string
	for _, pid := range servers {
		commands = append(commands,
			fmt.Sprintf("set_device_pinned_mem_limit %d 0 %dM", pid, int64(w.Limit)),
			fmt.Sprintf("set_active_thread_percentage %d %s", pid, strconv.FormatFloat(w.ThreadPercentage, 'f', -1, 64)))
	}
	return d.check(ctx, w, commands)
}
