package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// readOwn takes the records of this node.
func readOwn(book *advise.Book, paths config.Paths, since time.Time) error {
	records, err := history.Records(paths, since)
	if err != nil {
		return ownRecords(err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	for _, r := range records {
		book.Add(named(r, host))
	}
	return nil
}

// named is a record that says which node it is of.
func named(r record.Job, host string) record.Job {
	if r.Node == "" {
		r.Node = host
	}
	return r
}

// readFiles takes the records of files.
func readFiles(book *advise.Book, stdin io.Reader, files []string, stderr io.Writer) error {
	for _, name := range files {
		skipped, err := readFile(book, stdin, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if skipped > 0 {
			fmt.Fprintf(stderr, "%s: %d lines are no records and are left out\n", name, skipped)
		}
	}
	return nil
}

func readFile(book *advise.Book, stdin io.Reader, name string) (skipped int, err error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return 0, errors.Unwrap(err) // the name is said already
		}
		defer file.Close()
		from = file
	}
	text, err := uncompressed(from)
	if err != nil {
		return 0, err
	}
	count := 0
	skipped, err = record.Read(text, func(j record.Job) {
		count++
		book.Add(j)
	})
	if err == nil && count == 0 && skipped > 0 {
		return skipped, show.Hint(errors.New("no line of it is a record of a job"), "gpuslot usage --export writes such files")
	}
	return skipped, err
}

// uncompressed looks at the first bytes.
func uncompressed(from io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(from, 64<<10)
	head, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("it looks compressed, but %w", err)
	}
	return bufio.NewReader(z), nil
}

// exportRecords writes records as "gpuslot advise" reads them elsewhere.
func exportRecords(w io.Writer, records []record.Job) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	for _, r := range records {
		if err := lines.Encode(named(r, host)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// writePrivately puts a file to its place at once, for its owner alone: it names
// users.
func writePrivately(name string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".gpuslot-advise-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, errWrite := f.Write(text)
	if err := errors.Join(errWrite, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}
