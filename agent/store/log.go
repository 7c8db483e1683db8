package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Log is a file of JSON lines that is only appended to. A full file becomes the
// newest of a few older ones, and the oldest of these is removed. One agent
// writes; other programs may read meanwhile.
type Log struct {
	// Dir is the directory of the files, Name the part of their names before
	// ".jsonl".
	Dir, Name string
	// Size is the limit of one file in bytes, Older the number of older files.
	Size  int64
	Older int
}

// Path is the file that is written now for age 0, and the older ones from 1 on.
func (l Log) Path(age int) string {
	if age == 0 {
		return filepath.Join(l.Dir, l.Name+".jsonl")
	}
	return filepath.Join(l.Dir, fmt.Sprintf("%s.%d.jsonl", l.Name, age))
}

// Append appends whole lines in one write. It first ends a line that a power cut
// tore, so that the torn line spoils no other. Only root may read: lines name users.
func (l Log) Append(text []byte) (err error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("keep %s: %w", l.Name, err)
	}
	if info, err := os.Lstat(l.Path(0)); err == nil && info.Size() > 0 && info.Size()+int64(len(text)) > l.Size {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("keep %s: %w", l.Name, err)
		}
	}
	f, err := os.OpenFile(l.Path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("keep %s: %w", l.Name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if torn(f) {
		text = append([]byte("\n"), text...)
	}
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("keep %s: %w", l.Name, err)
	}
	return nil
}

// torn: the last line has no end.
func torn(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

func (l Log) rotate() error {
	for age := l.Older; age > 0; age-- {
		if err := os.Rename(l.Path(age-1), l.Path(age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read calls each with every line, the oldest first, without its end of line. It is
// no error if there is no file.
func (l Log) Read(each func(line []byte)) error {
	files, err := l.open()
	defer func() {
		for _, f := range files {
			_ = f.Close() // only read
		}
	}()
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(files) {
		text, err := io.ReadAll(io.LimitReader(f, l.Size+maxLine))
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		for line := range bytes.Lines(text) {
			each(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return nil
}

// maxLine is more than any line takes.
const maxLine = 64 << 10

// open opens the files, the newest first: one that is renamed meanwhile is met
// again under its older name, and left out then, but never missed.
func (l Log) open() ([]*os.File, error) {
	var files []*os.File
	var infos []fs.FileInfo
	for age := range l.Older + 1 {
		f, err := os.Open(l.Path(age))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err != nil {
			return files, err
		}
		if slices.ContainsFunc(infos, func(o fs.FileInfo) bool { return os.SameFile(o, info) }) {
			files = files[:len(files)-1]
			_ = f.Close()
			continue
		}
		infos = append(infos, info)
	}
	return files, nil
}
