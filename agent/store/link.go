package store

import (
	"errors"
	"fmt"
	"os"
)

// Link keeps one word as a symbolic link, which a program reads in microseconds. An empty
// word is no link.
func Link(path, word string) error {
	now, err := os.Readlink(path)
	switch {
	case word == now && (err == nil || errors.Is(err, os.ErrNotExist)):
		return nil
	case word == "":
		return os.Remove(path)
	}
	next := path + ".new"
	if err := Remove(next); err != nil {
		return err
	}
	if err := os.Symlink(word, next); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(next, path)
}
