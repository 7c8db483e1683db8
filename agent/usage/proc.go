package usage

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// procFS is a view of proc(5).
type procFS struct{ root string }

// started is a process's start time in clock ticks since boot. It is read for
// every process on every GPU in every round, so without package os.
func (fs procFS) started(pid int) (uint64, error) {
	path := fs.root + "/" + strconv.Itoa(pid) + "/stat"
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var line [1024]byte                   // twice the longest
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, line[:]) })
	if err != nil {
		return 0, err
	}
	return parseStarted(line[:n])
}

// uninterrupted repeats a call that a signal of the Go runtime cut off.
func uninterrupted(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

var (
	errShortStat = errors.New("process status line is cut short")
	errEnded     = errors.New("the process has ended")
)

// parseStarted reads field 22 of "pid (comm) state ppid …"; comm may hold
// spaces and parentheses and ends at the last one (proc(5)). A process that
// has ended, but was not waited for, has no start time. One whose first thread
// alone has ended is in state Z too, and runs on: field 20 counts its threads.
func parseStarted(b []byte) (uint64, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, errShortStat
	}
	field, zombie := 2, false
	for word := range bytes.FieldsSeq(b[end+1:]) {
		switch field++; {
		case field == 3:
			zombie = word[0] == 'Z'
			if word[0] == 'X' || word[0] == 'x' {
				return 0, errEnded
			}
		case field == 20 && zombie && (string(word) == "0" || string(word) == "1"):
			return 0, errEnded
		case field == 22:
			return strconv.ParseUint(string(word), 10, 64)
		}
	}
	return 0, errShortStat
}
