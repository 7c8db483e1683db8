package show

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Output is standard output. It keeps the first error in Err, which verbs that
// print text do not look at.
type Output struct {
	io.Writer
	Err error
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.Err == nil {
		o.Err = fmt.Errorf("what is printed is incomplete: %w", err)
	}
	return n, err
}

// File is the file that a verb's output is, if it is one.
func File(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*Output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return f, ok
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// ClearLine is the escape sequence that clears a line from the cursor on.
const ClearLine = "\x1b[K"
