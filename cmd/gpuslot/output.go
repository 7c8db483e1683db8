package main

import (
	"fmt"
	"io"
	"os"
)

// output is standard output. It keeps the first error, which verbs that print
// text do not look at: what was cut short is no success.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("what is printed is incomplete: %w", err)
	}
	return n, err
}

// asFile is the file that a verb's output is, if it is one.
func asFile(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return f, ok
}
