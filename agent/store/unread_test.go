package store

import (
	"os"
	"testing"
)

// TestLogRefused: what cannot be read or written is an error, and a file that is met twice is read once.
func TestLogRefused(t *testing.T) {
	l := Log{Dir: t.TempDir() + "/log", Name: "events", Size: 100, Older: 2}
	read := func(want int) {
		t.Helper()
		lines := 0
		if err := l.Read(func([]byte) { lines++ }); (err == nil) != (want >= 0) || err == nil && lines != want {
			t.Errorf("%d lines, want %d: %v", lines, want, err)
		}
	}
	read(0)
	if err := l.Append([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	read(1)
	for _, name := range []string{l.Path(1), l.Path(2)} { // as if it were renamed while it is read
		if err := os.Link(l.Path(0), name); err != nil {
			t.Fatal(err)
		}
		read(1)
	}
	if err := os.Remove(l.Path(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.Path(1), 0o755); err != nil {
		t.Fatal(err)
	}
	read(-1)
	if err := os.Remove(l.Path(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", l.Path(0)); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]byte("{}\n")); err == nil {
		t.Error("a link was followed")
	}
	l.Dir = l.Path(2)
	if err := l.Append([]byte("{}\n")); err == nil {
		t.Error("its directory is a file")
	}
}
