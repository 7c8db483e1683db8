package agent

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

// lines is a file of JSON lines that is only added to. When it is full it
// becomes the first of a few older ones, and the oldest is forgotten. One agent
// writes; anybody may read meanwhile.
type lines struct {
	dir, name string
	// most is the size of one file in bytes, kept the number of older ones.
	most int64
	kept int
}

// path is the file itself for 0, and the older ones from 1 on.
func (l lines) path(age int) string {
	if age == 0 {
		return filepath.Join(l.dir, l.name+".jsonl")
	}
	return filepath.Join(l.dir, fmt.Sprintf("%s.%d.jsonl", l.name, age))
}

// add appends whole lines in one write. A line that a power cut tore is ended
// first, so that it spoils no other. Only root may read: lines name users.
func (l lines) add(text []byte) (err error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("keep %s: %w", l.name, err)
	}
	if info, err := os.Lstat(l.path(0)); err == nil && info.Size() > 0 && info.Size()+int64(len(text)) > l.most {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("keep %s: %w", l.name, err)
		}
	}
	f, err := os.OpenFile(l.path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("keep %s: %w", l.name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if torn(f) {
		text = append([]byte("\n"), text...)
	}
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("keep %s: %w", l.name, err)
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

func (l lines) rotate() error {
	for age := l.kept; age > 0; age-- {
		if err := os.Rename(l.path(age-1), l.path(age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// read gives every line, the oldest first. No file at all is no error.
func (l lines) read(each func(line []byte)) error {
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
		text, err := io.ReadAll(io.LimitReader(f, l.most+maxLine))
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
func (l lines) open() ([]*os.File, error) {
	var files []*os.File
	var infos []fs.FileInfo
	for age := range l.kept + 1 {
		f, err := os.Open(l.path(age))
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
