package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// packed is the file that comes home.
	packed = "results.tgz"
	// every is how old it may be when the machine is taken away.
	every = 15 * time.Second
	// mostOfFile is what is packed of one file: its beginning.
	mostOfFile = 2 << 20
)

var packing sync.Mutex

// keepPacking packs again and again until stop.
func (c *call) keepPacking() (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(c.scaled(every))
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = c.pack()
			}
		}
	}()
	return func() { close(done); <-gone }
}

// pack writes OUT/results.tgz, whole or not at all.
func (c *call) pack() error {
	packing.Lock()
	defer packing.Unlock()
	name := filepath.Join(c.out, packed)
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	err = errors.Join(tarball(f, c.raw), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "first.sh: pack:", err)
	}
	return err
}

func tarball(w io.Writer, dir string) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) == ".new" {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // a part removes files meanwhile
			}
			return err
		}
		return add(t, dir, path)
	})
	return errors.Join(err, t.Close(), z.Close())
}

// add adds a file as it is now: parts write meanwhile.
func add(t *tar.Writer, dir, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostOfFile))
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = t.Write(b)
	return err
}

// unpack reads what pack wrote.
func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%s: %q does not belong there", file, h.Name)
		}
		b, err := io.ReadAll(io.LimitReader(t, mostOfFile))
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)); err != nil {
			return err
		}
	}
}
