package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the code says into the golden files; read the difference before committing it")

// TestBadConfig holds every error to its exact text.
func TestBadConfig(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil || len(a.Files) != 2 || a.Files[0].Name != "gpuslot.toml" || a.Files[1].Name != "want" {
				t.Fatalf("%v in %s", err, file)
			}
			_, err = Parse("gpuslot.toml", a.Files[0].Data)
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			if *update {
				a.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(a.Files[1].Data), got); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

// TestUnreadable is TestBadConfig for texts that no text file can hold.
func TestUnreadable(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"10 MB":        {strings.Repeat("# shares\n", 10<<20/9), "f.toml: the file is larger than 1048576 bytes; is it a gpuslot.toml?"},
		"rubbish":      {"\x7fELF\x02\x01\x01\x00\xff\xfe\xfd\n", "f.toml:1: the line is not UTF-8 text; save the file as UTF-8"},
		"Latin-1":      {"[sharing]\n# f\xfcr alle\n", "f.toml:2: the line is not UTF-8 text; save the file as UTF-8"},
		"UTF-8 BOM":    {"\xef\xbb\xbf[sharing]\n", "f.toml:1: the file starts with a byte order mark; save it as UTF-8 without one"},
		"UTF-16":       {"\xff\xfe[\x00s\x00", "f.toml:1: the file starts with a byte order mark; save it as UTF-8 without one"},
		"NUL":          {"[sharing]\nmode = \"\x00\"\n", "f.toml:2: not TOML: TOML files cannot contain control characters: '0x00'"},
		"NUL first":    {"\x00[sharing]\n", "f.toml:1: not TOML: files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8"},
		"long line":    {"[sharing]\nmode = \"" + strings.Repeat("m", 1000) + "\"\n", "f.toml:2: the line has 1009 bytes; a line of gpuslot.toml has at most 1000"},
		"deep arrays":  {"a = " + strings.Repeat("[\n", 100000), "f.toml:9: more than 8 brackets are open here; no value of gpuslot.toml needs that"},
		"deep tables":  {"a = " + strings.Repeat("{\na = ", 100000), "f.toml:9: more than 8 brackets are open here; no value of gpuslot.toml needs that"},
		"just a quote": {`"`, "f.toml:1: not TOML: unexpected EOF; expected '\"'"},
	} {
		if _, err := Parse("f.toml", []byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s: the error is\n\t%v\nwant\n\t%s", name, err, c.want)
		}
	}
}

// Brackets in comments and strings are no nesting.
func TestBracketsThatDoNotNest(t *testing.T) {
	text := strings.Repeat("# [[[[[[ {{{{{{\n", 10) + "[host.\"wn-gpu[[[[[[[[[[[1]\"]\n[host.'wn[[[[[[[[[[[[2]']\n[host.\"a\\\"[[[[[[[[[[b]\"]\n"
	if _, err := Parse("f.toml", []byte(text)); err != nil {
		t.Error(err)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	_, err := Parse("f.toml", []byte("[sharing]\nshares = 99\nmode = \"x\"\n"))
	var first *Error
	if !errors.As(err, &first) {
		t.Fatalf("%T holds no *Error", err)
	}
	want := Error{File: "f.toml", Line: 2, Key: "sharing.shares", Value: "99", Problem: `write a number of jobs from 1 to 60, or "auto"`}
	if *first != want {
		t.Errorf("the first error is %+v; want %+v", *first, want)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 2 {
		t.Errorf("the errors are not joined: %v", err)
	}
}

// A file of the greatest size with nothing right in it gives as many errors as
// an operator reads.
func TestManyErrors(t *testing.T) {
	var b bytes.Buffer
	for i := 0; b.Len() < maxFileBytes-50; i++ {
		fmt.Fprintf(&b, "[host.wn%d]\nx%d = 1\n", i, i)
	}
	_, err := Parse("f.toml", b.Bytes())
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "f.toml: and more; these are the first 100 errors" {
		t.Errorf("%d errors; the last is %s", len(lines), lines[len(lines)-1])
	}
}
