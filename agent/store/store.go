// Package store reads and writes the JSON files that outlive the agent. One rule
// holds for all of them: a file is either as its writer left it or unreadable. An
// unreadable file is never taken for an empty one, and never lost: see Aside. Log is
// for what is only appended to.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ErrNewer is in the error of a file that a newer gpuslot wrote.
var ErrNewer = errors.New("a newer gpuslot wrote it")

// Store is one saved file with a T in it.
type Store[T any] struct {
	// Path of the file.
	Path string
	// Schema is what the field "schema" must say, such as "gpuslot-holds/1"; empty
	// for files without that field.
	Schema string
}

// Read returns the file's content. A missing file matches fs.ErrNotExist; every
// other error means that the content is not known.
func (s Store[T]) Read() (T, error) {
	b, err := os.ReadFile(s.Path)
	if err != nil {
		var none T
		return none, err
	}
	v, err := Decode[T](b, s.Schema)
	if err != nil {
		return v, fmt.Errorf("%s: %w", s.Path, err)
	}
	return v, nil
}

// Decode reads one JSON value of a schema. Unknown fields, text after the value
// and null are errors, and the result is then the zero value.
func Decode[T any](b []byte, schema string) (T, error) {
	var v, none T
	if schema != "" {
		if err := checkSchema(b, schema); err != nil {
			return none, err
		}
	}
	if string(bytes.TrimSpace(b)) == "null" {
		return none, errors.New("it says null")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return none, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return none, fmt.Errorf("text follows the end of the value at byte %d", d.InputOffset())
	}
	return v, nil
}

// checkSchema comes before the fields: those of another schema would only give
// misleading errors.
func checkSchema(b []byte, want string) error {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&head); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return err
	}
	if head.Schema == want {
		return nil
	}
	family, own := split(want)
	err := fmt.Errorf("schema is %.40q, this gpuslot reads %q", head.Schema, want)
	if name, version := split(head.Schema); name == family && version > own {
		return fmt.Errorf("%w: %w", ErrNewer, err)
	}
	return err
}

func split(schema string) (family string, version int) {
	family, v, _ := strings.Cut(schema, "/")
	version, _ = strconv.Atoi(v)
	return family, version
}

// Aside renames an unreadable file to NAME.unreadable, so that a new one may take
// its place. It replaces an older NAME.unreadable. A missing file is no error.
func Aside(path string) error {
	if err := rename(path, path+".unreadable"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep the unreadable file: %w", err)
	}
	return nil
}
