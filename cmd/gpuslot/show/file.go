package show

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile puts a file to its place at once, for its owner alone: it may name users. Verbs run as root, so it follows
// no link that another account may have put there. It replaces a file and nothing else, such as /dev/null.
func WriteFile(name string, write func(io.Writer) error) error {
	if st, err := os.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return Hint(fmt.Errorf("write %s: what is there is no file", name), "name another file, whose place is free")
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".gpuslot-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}

// WriteText is WriteFile of a text.
func WriteText(name string, text []byte) error {
	return WriteFile(name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
