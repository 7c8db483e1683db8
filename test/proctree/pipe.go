package proctree

import (
	"errors"
	"os"
)

// AnswerPipe ends the reads of a pipe that stands in the place of a file: this text is what they read. A file with the
// text takes its place, for later reads.
func AnswerPipe(path, text string) error {
	w, err := os.OpenFile(path, os.O_RDWR, 0) // this does not wait for a reader
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path))
	_, no := w.WriteString(text)
	return errors.Join(err, no, w.Close())
}
