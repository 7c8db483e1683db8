package show

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteFile: a file is its owner's alone, comes at once or not, and leaves nothing beside it. What is no file stays.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name, link, other := filepath.Join(dir, "r"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	pipe := filepath.Join(dir, "pipe") // as a device would be
	if err := errors.Join(os.WriteFile(other, []byte("mine"), 0o644), os.Symlink(other, link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := WriteText(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, errRead := os.ReadFile(name)
		st, err := os.Lstat(name)
		if errors.Join(errRead, err) != nil || string(got) != text || st.Mode() != 0o600 {
			t.Errorf("%q, %v, %v", got, st.Mode(), errors.Join(errRead, err))
		}
	}
	no := errors.New("no")
	fails := func(w io.Writer) error {
		_, err := io.WriteString(w, "x")
		return errors.Join(err, no)
	}
	if err := WriteFile(name, fails); !errors.Is(err, no) {
		t.Errorf("a writer that fails: %v", err)
	}
	for _, bad := range []string{link, dir, filepath.Join(dir, "absent", "r"), pipe} {
		if err := WriteText(bad, []byte("x")); err == nil {
			t.Errorf("%s is written", bad)
		}
	}
	for file, want := range map[string]string{name: "two", link: "mine", other: "mine"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("%v, %v", entries, err)
	}
}
