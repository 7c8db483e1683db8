package usage

import (
	"bytes"
	"errors"
	"os"
	"strconv"
)

// procFS is a view of proc(5).
type procFS struct{ root string }

// started is a process's start time in clock ticks since boot.
func (fs procFS) started(pid int) (uint64, error) {
	b, err := os.ReadFile(fs.root + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return parseStarted(b)
}

var errShortStat = errors.New("process status line is cut short")

// parseStarted reads field 22 of "pid (comm) state ppid …"; comm may hold
// spaces and parentheses and ends at the last one (proc(5)). A process that
// has ended, but was not waited for, has no start time.
func parseStarted(b []byte) (uint64, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, errShortStat
	}
	rest := b[end+1:]
	for field := 3; ; field++ {
		rest = bytes.TrimLeft(rest, " \n")
		word, tail, _ := bytes.Cut(rest, []byte{' '})
		if len(word) == 0 {
			return 0, errShortStat
		}
		switch {
		case field == 3 && (word[0] == 'Z' || word[0] == 'X'):
			return 0, errors.New("the process has ended")
		case field == 22:
			return strconv.ParseUint(string(bytes.TrimRight(word, "\n")), 10, 64)
		}
		rest = tail
	}
}
