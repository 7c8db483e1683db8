package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzFile: what is taken over is what the next agent takes over.
func FuzzFile(f *testing.F) {
	f.Add([]byte(`[{"uuid":"GPU-00000000-0000-4000-8000-000000000000","ok":true,"control_daemon":{"PID":7,"Started":9},"void":"x"}]`))
	f.Add([]byte(`[{"uuid":"GPU-X"},{}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o := Options{File: filepath.Join(t.TempDir(), "verified.json")}
		if err := os.WriteFile(o.File, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, again := New(o), New(o)
		if err := s.Read(); err != nil {
			return
		}
		if err := s.write(); err != nil {
			t.Fatal(err)
		}
		if err := again.Read(); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(s.by)
		two, _ := json.Marshal(again.by)
		if string(one) != string(two) {
			t.Fatalf("%s became %s", one, two)
		}
	})
}
