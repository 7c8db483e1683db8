package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fileOf writes what a file of an earlier agent may hold.
func fileOf(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// FuzzUndo: what is taken over is what the next agent takes over.
func FuzzUndo(f *testing.F) {
	f.Add([]byte(`{"schema":"gpuslot-undo/1","compute_modes":{"GPU-00000000-0000-4000-8000-000000000000":"default"},"mig_modes":{"GPU-00000000-0000-4000-8000-000000000001":false}}`))
	f.Add([]byte(`{"schema":"gpuslot-undo/2"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := fileOf(t, text)
		u, err := readUndo(path)
		if err != nil {
			return
		}
		u.ComputeModes[uuid(7)] = "default" // never nil: it is written to
		u.MIGModes[uuid(7)] = true
		if err := u.write(path); err != nil {
			t.Fatal(err)
		}
		again, err := readUndo(path)
		if d := cmp.Diff(u, again); err != nil || d != "" {
			t.Fatal(err, d)
		}
	})
}

// FuzzRepartition: what is taken over is what the next agent takes over.
func FuzzRepartition(f *testing.F) {
	f.Add([]byte(`{"past":{"auto":{"waited":{"3g.20gb":"2026-11-21T09:42:50Z"}}},"said":{"auto":"x"},"chosen":{"GPU-00000000-0000-4000-8000-000000000000":"3g.20gb@4"}}`))
	f.Add([]byte(`{"past":{"":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := fileOf(t, text)
		var r, again repartition
		if err := r.read(path); err != nil {
			return
		}
		if err := r.saved.write(path); err != nil {
			t.Fatal(err)
		}
		if err := again.read(path); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(r.saved)
		two, _ := json.Marshal(again.saved)
		if len(r.saved.Past)+len(r.saved.Chosen)+len(r.saved.Said) > 0 && string(one) != string(two) {
			t.Fatalf("%s became %s", one, two)
		}
	})
}

// FuzzVerified: what is taken over is what the next agent takes over.
func FuzzVerified(f *testing.F) {
	f.Add([]byte(`[{"uuid":"GPU-00000000-0000-4000-8000-000000000000","ok":true,"control_daemon":{"PID":7,"Started":9},"void":"x"}]`))
	f.Add([]byte(`[{"uuid":"GPU-X"},{}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := fileOf(t, text)
		s, again := newVerifier(nil), newVerifier(nil)
		if err := s.read(path); err != nil {
			return
		}
		if err := s.write(path); err != nil {
			t.Fatal(err)
		}
		if err := again.read(path); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(s.by)
		two, _ := json.Marshal(again.by)
		if string(one) != string(two) {
			t.Fatalf("%s became %s", one, two)
		}
	})
}
