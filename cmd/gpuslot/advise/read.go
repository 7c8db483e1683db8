package advise

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// ReadFiles adds the records of files; "-" is stdin. It writes to stderr what it leaves
// out.
func (b *Adviser) ReadFiles(stdin io.Reader, files []string, stderr io.Writer) error {
	for _, name := range files {
		skipped, err := b.readFile(stdin, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if skipped > 0 {
			fmt.Fprintf(stderr, "%s: %d lines are no records and are left out\n", name, skipped)
		}
	}
	return nil
}

func (b *Adviser) readFile(stdin io.Reader, name string) (skipped int, err error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return 0, errors.Unwrap(err) // the name is said already
		}
		defer file.Close()
		from = file
	}
	text, err := record.Uncompressed(from)
	if err != nil {
		return 0, err
	}
	count := 0
	skipped, err = record.Read(text, func(j record.Job) {
		count++
		b.Add(j)
	})
	if err == nil && count == 0 && skipped > 0 {
		return skipped, show.Hint(errors.New("no line of it is a record of a job"),
			"gpuslot usage --export writes such files")
	}
	return skipped, err
}
