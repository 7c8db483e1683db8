package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// DefaultPath is where the packages put the file.
const DefaultPath = "/etc/gpuslot/gpuslot.toml"

// Load reads and checks a configuration file. A missing file is an error that
// matches fs.ErrNotExist; an empty one means Default. Everything wrong in the
// file comes at once, as joined values of *Error.
func Load(path string) (Config, error) {
	text, err := read(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, text)
}

// read refuses pipes and sockets, on which opening would wait for a writer.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read configuration: %w; an empty file there means all defaults", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if kind := info.Mode().Type(); kind&^(fs.ModeDevice|fs.ModeCharDevice) != 0 {
		return nil, fmt.Errorf("read configuration: %s is not a regular file; name the TOML file itself", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return text, nil
}

// Parse checks the text of a configuration file; name stands in the errors.
func Parse(name string, text []byte) (Config, error) {
	if e := screen(text); e != nil {
		e.File = name
		return Config{}, e
	}
	src, e := decode(text)
	if e != nil {
		e.File = name
		return Config{}, e
	}
	d := draft{Config: Default(), src: src, globs: map[string]bool{}}
	d.fill()
	d.check()
	errs, warnings := d.report(name)
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	d.Warnings = warnings
	return d.Config, nil
}
