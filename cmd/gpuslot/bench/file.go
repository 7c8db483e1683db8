package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// FileName is what a result is called in a directory.
const FileName = "bench.json"

// maxBytes is far above any real result: a run of 60 copies takes 4 kB.
const maxBytes = 16 << 20

// Decode reads a result strictly: unknown fields, trailing text and what cannot
// have been measured are errors.
func Decode(r io.Reader) (Result, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return Result{}, fmt.Errorf("bench result: %w", err)
	}
	if len(b) > maxBytes {
		return Result{}, fmt.Errorf("bench result is larger than %d bytes; is it the right file?", maxBytes)
	}
	var out Result
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return Result{}, fmt.Errorf("bench result: %w; record it again with: gpuslot bench -o DIR", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Result{}, errors.New("bench result: text after the closing brace")
	}
	if err := out.Check(); err != nil {
		return Result{}, err
	}
	return out, nil
}

// Encode prints a result as Decode reads it.
func (r Result) Encode() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bench result: %w", err)
	}
	return append(b, '\n'), nil
}

// Read reads the file of a result, or the directory that holds one.
func Read(path string) (Result, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, FileName)
	}
	f, err := os.Open(path)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	r, err := Decode(f)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write puts a result into dir, atomically.
func (r Result) Write(dir string) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+FileName+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone where all went well
	_, err = f.Write(b)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, FileName))
}
