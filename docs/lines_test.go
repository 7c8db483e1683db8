package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// mostLong is how many lines of the program have more than 120 columns. Lower it when
// there are fewer; "make house" counts them too.
const mostLong = 295

// TestLongLines: the program gets no more lines above 120 columns.
func TestLongLines(t *testing.T) {
	var long []string
	for _, root := range []string{"cmd", "agent", "condor", "gpu", "mig", "mps", "systemd"} {
		err := filepath.WalkDir("../"+root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 120 {
					long = append(long, path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(long) > mostLong {
		t.Errorf("%d lines of Go have more than 120 columns, at most %d are allowed; they are in %s", len(long), mostLong, strings.Join(long, ", "))
	}
}
