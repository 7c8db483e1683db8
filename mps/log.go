package mps

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
)

// stampForm is the time that begins each line of the log, local and after a "[".
const stampForm = "2006-01-02 15:04:05.000"

const (
	// maxLog is the size above which a log file is put aside: 25 MB a day are
	// usual at one conversation a second.
	maxLog = 16 << 20
	// lastLog is how much of its end is looked at.
	lastLog = 256 << 10
)

// Log is what the control daemon of a GPU and its servers wrote since a time, as
// the runner kept it. It tells what no command does, see ParseEvent, and proves
// nothing. Reading it may cost a process: ask when something happened, not
// again and again.
func (s *Daemons) Log(ctx context.Context, u gpu.UUID, since time.Time) ([]string, error) {
	return s.runner.Log(ctx, u, since)
}

// TrimLog keeps a log from growing without end where the runner has to do so
// itself: Processes has, the journal has not.
func (s *Daemons) TrimLog(u gpu.UUID) error {
	if r, ok := s.runner.(interface{ TrimLog(gpu.UUID) error }); ok {
		return r.TrimLog(u)
	}
	return nil
}

func (p Processes) logFile(u gpu.UUID) string { return filepath.Join(p.Logs, string(u)+".log") }

// Log reads the end of the log file. Lines without a time of their own belong
// to the one before.
func (p Processes) Log(_ context.Context, u gpu.UUID, since time.Time) ([]string, error) {
	f, err := os.Open(p.logFile(u))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was ever written
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(0, end-lastLog)
	b, err := io.ReadAll(io.NewSectionReader(f, from, end-from))
	if err != nil {
		return nil, err
	}
	return linesSince(string(b), from > 0, since, time.Local), nil
}

// linesSince are the lines of a text that were written at a time or later. A cut
// text begins anywhere in a line.
func linesSince(text string, cut bool, since time.Time, zone *time.Location) []string {
	if cut {
		_, text, _ = strings.Cut(text, "\n")
	}
	since = since.Truncate(time.Millisecond) // as the stamps are
	var out []string
	late := false
	for line := range strings.Lines(text) {
		if at, ok := stampOf(line, zone); ok {
			late = !at.Before(since)
		}
		if late {
			out = append(out, strings.TrimRight(line, "\r\n"))
		}
	}
	return out
}

// stampOf is when a line was written.
func stampOf(line string, zone *time.Location) (time.Time, bool) {
	if len(line) < 1+len(stampForm) || line[0] != '[' {
		return time.Time{}, false
	}
	at, err := time.ParseInLocation(stampForm, line[1:1+len(stampForm)], zone)
	return at, err == nil
}

// openLog opens the log file for appending, and puts a large one aside.
func (p Processes) openLog(u gpu.UUID) (*os.File, error) {
	if err := os.MkdirAll(p.Logs, 0o755); err != nil {
		return nil, err
	}
	if err := p.TrimLog(u); err != nil {
		return nil, err
	}
	return os.OpenFile(p.logFile(u), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// TrimLog copies a large log file to <file>.1 and empties it. The daemon never
// opens its log again, but appends, so it goes on in the empty file; what it
// writes between the two steps is lost. A copy that cannot be had, because the
// disk is full, does not keep the file from being emptied.
func (p Processes) TrimLog(u gpu.UUID) error {
	name := p.logFile(u)
	st, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() <= maxLog {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if copyErr := copyTo(name+".1", f); copyErr != nil {
		_ = os.Remove(name + ".1")
	}
	return f.Truncate(0)
}

// copyTo writes all of a file in place of another.
func copyTo(name string, f io.Reader) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return errors.Join(err, to.Close())
}
