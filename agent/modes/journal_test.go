package modes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzUndo: what is taken over is what the next agent takes over.
func FuzzUndo(f *testing.F) {
	f.Add([]byte(`{"schema":"gpuslot-undo/1","compute_modes":{"GPU-00000000-0000-4000-8000-000000000000":"default"},"mig_modes":{"GPU-00000000-0000-4000-8000-000000000001":false}}`))
	f.Add([]byte(`{"schema":"gpuslot-undo/2"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "undo.json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		u, err := Read(path)
		if err != nil {
			return
		}
		u.ComputeModes["GPU-00000000-0000-4000-8000-000000000007"] = "default" // never nil: it is written to
		u.MIGModes["GPU-00000000-0000-4000-8000-000000000007"] = true
		if err := u.Write(path); err != nil {
			t.Fatal(err)
		}
		again, err := Read(path)
		if d := cmp.Diff(u, again); err != nil || d != "" {
			t.Fatal(err, d)
		}
	})
}

// A file that cannot be read is left alone, and the error says what to do.
func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema":"gpuslot-undo/2"}`: "until the gpuslot that wrote it has run --release",
		`{"schema":`:                  "until the file is mended or removed",
	} {
		path := filepath.Join(t.TempDir(), "undo.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), want) || j.ComputeModes == nil || j.MIGModes == nil {
			t.Errorf("%s: %+v, %v", text, j, err)
		}
	}
}
