package proctree

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Hold lets reads of files of a process wait, as the kernel may (process.ErrHeld), until answer is called or the test
// ends.
func (f Tree) Hold(pid int, names ...string) (answer func()) {
	f.t.Helper()
	was := map[string]string{}
	for _, name := range names {
		file := filepath.Join(f.dir(pid), name)
		text, err := os.ReadFile(file)
		if err = errors.Join(err, os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
			f.t.Fatal(err)
		}
		was[file] = string(text)
	}
	answer = func() {
		for file, text := range was {
			if err := AnswerPipe(file, text); err != nil {
				f.t.Error(err)
			}
		}
		clear(was)
	}
	f.t.Cleanup(answer)
	return answer
}

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
