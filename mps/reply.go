package mps

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Exit codes and empty output of the command line prove nothing: with another
// connection open it may return 0 without having executed anything. So every
// command is followed by a word that no daemon knows, and was executed if and
// only if the daemon complains about exactly that word.

// marker is the n-th end marker of a conversation.
func marker(nonce string, n int) string { return "eof-" + nonce + "-" + strconv.Itoa(n) }

// script is what goes to the command line's standard input.
func script(nonce string, commands []string) string {
	var b strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&b, "%s\n%s\n", c, marker(nonce, i))
	}
	return b.String()
}

// splitReplies cuts the output of a script into one reply per command. It
// reports false when a marker is missing: then not every command was executed. What
// stands behind the last one is of no command.
func splitReplies(out, nonce string, n int) ([]string, bool) {
	replies := make([]string, 0, n)
	for i := range n {
		end := fmt.Sprintf("Unknown command %q\n", marker(nonce, i))
		at := lineIndex(out, end)
		if at < 0 {
			return nil, false
		}
		replies = append(replies, strings.TrimSuffix(out[:at], "\n"))
		out = out[at+len(end):]
	}
	return replies, true
}

// lineIndex is strings.Index for text that starts a line.
func lineIndex(s, line string) int { return strings.Index("\n"+s, "\n"+line) }

// readBack are the commands behind a Checked.
var readBack = []string{
	"get_default_device_pinned_mem_limit 0",
	"get_default_active_thread_percentage",
}

// setCommands gives the daemon its limits. Device 0 is the only one that it
// sees; an ordinal is right on every driver, a UUID of another form is dropped
// in silence. Always a whole number and "M": "1.5G" and "1T" mean 1 MiB.
func setCommands(w Wanted) []string {
	return []string{
		fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", int64(w.Limit)),
		"set_default_active_thread_percentage " + strconv.FormatFloat(w.ThreadPercentage, 'f', -1, 64),
	}
}

// largestLimit is far above any GPU; the daemon itself would take a negative
// number for 17179869183 GiB.
const largestLimit gpu.MiB = 1 << 30

func (w Wanted) check() error {
	if w.Limit < 1 || w.Limit > largestLimit {
		return fmt.Errorf("the pinned device memory limit %v is not between 1 MiB and %v: give the GPU a larger VRAM "+
			"pool", w.Limit, largestLimit)
	}
	if !(w.ThreadPercentage >= 0.1 && w.ThreadPercentage <= 100) {
		return fmt.Errorf("the active thread percentage %v is not between 0.1 and 100: set it within", w.ThreadPercentage)
	}
	return nil
}

// printedLimit is how the control daemons of 535, 550 and 555 print a limit.
func printedLimit(m gpu.MiB) string {
	if m >= 1024 {
		return strconv.FormatInt(int64(m/1024), 10) + "G"
	}
	return strconv.FormatInt(int64(m), 10) + "M"
}

// The lines that are read of a reply. A newer driver may print others beside them.
var (
	limitLine      = regexp.MustCompile(`(?m)^\d+[MG]$`)
	percentageLine = regexp.MustCompile(`(?m)^\d+(\.\d+)?$`)
	statusLine     = regexp.MustCompile(`(?m)^(INITIALIZING|ACTIVE|FAULT)$`)
	resultLine     = regexp.MustCompile(`(?m)^-?\d+$`)
)

// only is the one line of a reply that has a form. A reply without one, or with two that differ,
// comes back as it is: no reader takes it for the answer.
func only(reply string, form *regexp.Regexp) string {
	if found := slices.Compact(form.FindAllString(reply, -1)); len(found) == 1 {
		return found[0]
	}
	return reply
}

func parsePercentage(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") == "" {
		if p, err := strconv.ParseFloat(s, 64); err == nil && p <= 100 {
			return p, nil
		}
	}
	return 0, fmt.Errorf("its default active thread percentage reads %s, which is no percentage", printable(s))
}

// pidInWords finds what may be a PID in another form.
var pidInWords = regexp.MustCompile(`\b\d+\b`)

// parsePIDs reads get_server_list and get_client_list: one PID per line, or nothing. Lines of
// words are ignored beside PIDs.
func parsePIDs(s string) ([]int, error) {
	var pids []int
	for line := range strings.SplitSeq(s, "\n") {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		switch {
		case err == nil && pid > 0:
			pids = append(pids, pid)
		case s == "":
			return nil, nil
		case line == "" || pidInWords.MatchString(line):
			return nil, fmt.Errorf("%s is no PID", printable(line))
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("%s has no PID", printable(s))
	}
	return pids, nil
}

// isRefusal recognises an answer that means "not done". All three drivers
// begin it alike; 535 says nothing further.
func isRefusal(reply string) bool {
	return strings.Contains(reply, "Insufficient privileges") || strings.Contains(reply, "Not enough privilege") ||
		lineIndex(reply, "Unknown command") >= 0
}

// printable is foreign text for an error message.
func printable(s string) string {
	if s == "" {
		return "nothing"
	}
	return strconv.Quote(foreign.Clip(s))
}
