package store

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a/b")
	for _, text := range []string{"one", "two", ""} {
		changed, err := WriteIfChanged(path, []byte(text))
		if err != nil || !changed {
			t.Fatalf("%q: %v, %v", text, changed, err)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("file says %q, want %q", b, text)
		}
		if changed, err := WriteIfChanged(path, []byte(text)); changed || err != nil {
			t.Errorf("again %q: %v, %v", text, changed, err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left beside the file: %v", entries)
	}
	if err := Write(filepath.Join(path, "below"), nil); err == nil {
		t.Error("wrote below a file")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v: HTCondor's account must be able to read it", info.Mode(), err)
	}
	// A link where the temporary file belongs is not followed.
	target := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(target, filepath.Join(filepath.Dir(path), ".b.new")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x")); err == nil {
		t.Error("followed a link")
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("wrote through a link")
	}
}

// TestWriteFails: what was not written is an error, and leaves the old file and
// nothing beside it.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new")); err == nil { // the rename fails
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left beside the file: %v", entries)
	}
	if err := Aside(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + ".unreadable/in the way"); err != nil {
		t.Error(err)
	}
	if err := Aside(path); err != nil {
		t.Errorf("a missing file: %v", err)
	}
}

// TestFailuresAreReturned: what cannot be read, encoded or removed is an error.
func TestFailuresAreReturned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.MkdirAll(filepath.Join(dir, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if changed, err := WriteIfChanged(dir, []byte("new")); err == nil || changed {
		t.Errorf("a directory was read: %t, %v", changed, err)
	}
	if err := WriteJSON(filepath.Join(dir, "x.json"), func() {}); err == nil {
		t.Error("a function was encoded")
	}
	if err := WriteJSON(dir, "text"); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Remove(dir); err == nil {
		t.Error("a directory that is not empty was removed")
	}
	file := filepath.Join(dir, "file")
	if err := Write(file, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is gone already
		if err := Remove(file); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

type kept struct {
	Schema string   `json:"schema"`
	Names  []string `json:"names"`
}

// TestRead: a file is as its writer left it, missing, or an error.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		err     string // empty: it is read
		isNewer bool
	}{
		"whole":              {`{"schema":"x/2","names":["a"]}` + "\n", "", false},
		"empty":              {"", "empty", false},
		"blank":              {" \n", "empty", false},
		"truncated":          {`{"schema":"x/2","names":["a"`, "unexpected EOF", false},
		"rubbish":            {"\x00\x00\x00", "invalid character", false},
		"null":               {"null", `schema is ""`, false},
		"wrong type":         {`["a"]`, "cannot unmarshal", false},
		"wrong field type":   {`{"schema":"x/2","names":"a"}`, "cannot unmarshal", false},
		"unknown field":      {`{"schema":"x/2","names":["a"],"more":1}`, "unknown field", false},
		"text after the end": {`{"schema":"x/2","names":["a"]}{}`, "text follows", false},
		"rubbish after":      {`{"schema":"x/2","names":["a"]}]`, "text follows", false},
		"no schema":          {`{"names":["a"]}`, `schema is ""`, false},
		"older":              {`{"schema":"x/1","names":["a"]}`, `schema is "x/1", this gpuslot reads "x/2"`, false},
		"newer":              {`{"schema":"x/10","other":1}`, "newer gpuslot", true},
		"another family":     {`{"schema":"y/3","names":["a"]}`, `schema is "y/3"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Store[kept]{Path: filepath.Join(t.TempDir(), "x.json"), Schema: "x/2"}
			if err := os.WriteFile(s.Path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			v, err := s.Read()
			switch {
			case c.err == "" && (err != nil || len(v.Names) != 1):
				t.Errorf("%+v, %v", v, err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), s.Path)):
				t.Errorf("err = %v, want %q and the path", err, c.err)
			case c.err != "" && (v.Schema != "" || v.Names != nil):
				t.Errorf("an unreadable file gave %+v", v)
			}
			if errors.Is(err, ErrNewer) != c.isNewer {
				t.Errorf("newer: %v", err)
			}
		})
	}
}

// TestReadWithoutSchema: a file that is a bare list follows the same rules.
func TestReadWithoutSchema(t *testing.T) {
	for text, good := range map[string]bool{`[{"names":["a"]}]`: true, `[]`: true, `null`: false, ``: false, `{}`: false, `[{"x":1}]`: false, `[]]`: false} {
		if _, err := Decode[[]kept]([]byte(text), ""); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestReadMissing: only a file that is not there is no file.
func TestReadMissing(t *testing.T) {
	dir := t.TempDir()
	if _, err := (Store[kept]{Path: filepath.Join(dir, "x")}).Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := (Store[kept]{Path: dir}).Read(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestFullAndReadOnly: a full disk and one that became read-only keep the old file.
func TestFullAndReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "x.json")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	still := func(why string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != "old" || err != nil {
			t.Errorf("%s: the file says %q, %v", why, b, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: left beside the file: %v", why, entries)
		}
	}
	if err := Write(path, make([]byte, 1<<20)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("full: %v", err)
	}
	still("full")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new")); !errors.Is(err, unix.EROFS) {
		t.Errorf("read-only: %v", err)
	}
	if err := Aside(path); !errors.Is(err, unix.EROFS) {
		t.Errorf("read-only: %v", err)
	}
	still("read-only")
}

// TestKilledWriter: a process that is killed at any moment of its writes leaves
// one whole text, and at most one file beside it.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_WRITER"); dir != "" {
		for i := 0; ; i++ {
			if err := WriteJSON(filepath.Join(dir, "x.json"), kept{Schema: "x/2", Names: []string{strings.Repeat("ab"[i%2:i%2+1], 100_000)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	s := Store[kept]{Path: filepath.Join(dir, "x.json"), Schema: "x/2"}
	for range 10 {
		writer := exec.Command(os.Args[0], "-test.run", "^TestKilledWriter$")
		writer.Env = append(os.Environ(), "STORE_TEST_WRITER="+dir)
		writer.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := os.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(s.Path); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Error("the writer wrote nothing in 2 minutes")
				break
			}
		}
		_ = writer.Process.Kill()
		_ = writer.Wait()
		v, err := s.Read()
		if err != nil || len(v.Names) != 1 || len(v.Names[0]) != 100_000 || strings.Trim(v.Names[0], v.Names[0][:1]) != "" {
			t.Fatalf("after a kill: %v", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 2 {
			t.Fatalf("left beside the file: %v", entries)
		}
	}
}
