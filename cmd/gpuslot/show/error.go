package show

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// hinted is an error whose text alone does not say what to do.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint returns err with what to do about it.
func Hint(err error, hint string) error { return hinted{err, hint} }

// HintOf returns what to do about an error; false if it has no hint.
func HintOf(err error) (hint string, ok bool) {
	var h hinted
	ok = errors.As(err, &h)
	return h.hint, ok
}

// Error prints each line of an error as a sentence of its own, then its hint.
func Error(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(w, "gpuslot: %s\n", Visible(line))
	}
	if hint, ok := HintOf(err); ok {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}

// Warn prints warnings beside the output proper.
func Warn(w io.Writer, warnings []string) {
	for _, s := range warnings {
		fmt.Fprintf(w, "warning: %s\n", s)
	}
}

// wrongUsage is an error of the command line.
type wrongUsage struct{ error }

func (w wrongUsage) Unwrap() error { return w.error }

// Usage marks an error of the command line: the program did nothing, and exits with 2. A
// nil error stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return wrongUsage{err}
}

// IsUsage reports whether an error is one of the command line.
func IsUsage(err error) bool { return errors.As(err, new(wrongUsage)) }
