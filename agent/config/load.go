package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"
	"unicode/utf8"
)

// DefaultPath is where the packages put the file.
const DefaultPath = "/etc/gpuslot/gpuslot.toml"

// Bounds of the file. The largest real one, a table for each GPU of a big
// farm, stays far below; the TOML library needs time that grows with the
// square of a line's length.
const (
	maxFileBytes = 1 << 20
	maxLineBytes = 1000
)

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
	d := draft{Config: Default(), src: src}
	d.fill()
	d.check()
	errs, warnings := d.report(name)
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	d.Warnings = warnings
	return d.Config, nil
}

// screen refuses what the TOML library reads wrongly, slowly or not at all.
func screen(text []byte) *Error {
	if len(text) > maxFileBytes {
		return &Error{Problem: fmt.Sprintf("the file is larger than %d bytes; is it a gpuslot.toml?", maxFileBytes)}
	}
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return &Error{Line: 1, Problem: "the file starts with a byte order mark; save it as UTF-8 without one"}
		}
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if !utf8.Valid(line) {
			return &Error{Line: i + 1, Problem: "the line is not UTF-8 text; save the file as UTF-8"}
		}
		if len(line) > maxLineBytes {
			return &Error{Line: i + 1, Problem: fmt.Sprintf("the line has %d bytes; a line of gpuslot.toml has at most %d", len(line), maxLineBytes)}
		}
	}
	return nil
}

// maxErrors is how many errors anyone reads.
const maxErrors = 100

// report sorts the findings by their place and gives each its line.
func (d *draft) report(name string) (errs []error, warnings []string) {
	sort.SliceStable(d.findings, func(i, j int) bool {
		return d.src.order(d.findings[i].key) < d.src.order(d.findings[j].key)
	})
	for _, f := range d.findings {
		if len(errs) == maxErrors {
			errs = append(errs, &Error{File: name, Problem: fmt.Sprintf("and more; these are the first %d errors", maxErrors)})
			break
		}
		e := &Error{File: name, Line: d.src.line(f.key), Key: f.key.String(), Value: literal(f.value), Problem: f.problem}
		if f.warning {
			warnings = append(warnings, e.Error())
		} else {
			errs = append(errs, e)
		}
	}
	return errs, warnings
}

// oneLine keeps an error of the TOML library on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
