package systemd

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// JournalNamespace is the journal of the control daemons (LogNamespace= of
// gpuslot-mps@.service): they write much, and must not displace what others write.
const JournalNamespace = "gpuslot"

// JournalConfigFile is where packages install JournalConfig. systemd 245 to 252
// read only this form of a vendor's file for a namespace.
const JournalConfigFile = "/usr/lib/systemd/journald@" + JournalNamespace + ".conf.d/10-gpuslot.conf"

// JournalConfig bounds that journal.
//
//go:embed journald/10-gpuslot.conf
var JournalConfig string

// JournalCommand is what shows the log of a GPU's control daemon and what systemd
// says of its unit, which is in the journal of the machine.
func JournalCommand(unit string) string {
	return "journalctl --namespace=+" + JournalNamespace + " -u '" + unit + "'"
}

const (
	// journalTimeout bounds one reading; 10 ms are usual.
	journalTimeout = 5 * time.Second
	// maxLines and maxJournal bound what is read.
	maxLines   = 2000
	maxJournal = 1 << 20
)

// Log is what the control daemon of a GPU and its servers wrote since a time, at
// most the last 2000 lines and of these the last MiB: see mps.Daemons.Log.
func (MPSUnits) Log(ctx context.Context, u gpu.UUID, since time.Time) ([]string, error) {
	unit := MPSUnit(u)
	if _, ok := gpuOf(unit); !ok {
		return nil, fmt.Errorf("%q is no GPU UUID", string(u))
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	var out, errOut capped
	cmd := exec.CommandContext(ctx, "journalctl", journalArgs(unit, since)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("read the log of %s: %w: %s", unit, err, strings.TrimSpace(errOut.kept.String()))
	}
	lines := strings.FieldsFunc(out.kept.String(), func(r rune) bool { return r == '\n' })
	if out.kept.Len() == maxJournal {
		lines = lines[:max(0, len(lines)-1)] // it may be cut
	}
	slices.Reverse(lines)
	return lines, nil
}

// journalArgs asks both journals: a unit of before an upgrade writes to the
// machine's.
func journalArgs(unit string, since time.Time) []string {
	args := []string{"--namespace=+" + JournalNamespace, "--unit=" + unit, "--output=cat", "--quiet", "--no-pager",
		"--reverse", "--lines=" + strconv.Itoa(maxLines)}
	if since.Unix() > 0 {
		args = append(args, fmt.Sprintf("--since=@%d.%06d", since.Unix(), since.Nanosecond()/1000))
	}
	return args
}

// capped keeps the first maxJournal bytes and lets the rest go. The buffer is
// not embedded: its ReadFrom would take everything past Write.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	_, _ = c.kept.Write(p[:min(len(p), maxJournal-c.kept.Len())])
	return len(p), nil
}
