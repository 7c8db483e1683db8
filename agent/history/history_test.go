package history

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
)

// TestHistoryIsRoots: records and events name users, so only root may read them,
// which docs/security.md says.
func TestHistoryIsRoots(t *testing.T) {
	file := RecordLog(config.Paths{State: t.TempDir()})
	if err := file.Append([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Stat(file.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if row := fmt.Sprintf("| `/var/lib/gpuslot/records/`, `history/` | 0%o |", dir.Mode().Perm()); !strings.Contains(string(page), row) || dir.Mode().Perm() != 0o700 {
		t.Errorf("docs/security.md does not have %q", row)
	}
	if info, err := os.Stat(file.Path(0)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// FuzzEvents: any file is read without an error.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-01T10:00:00Z","kind":"fault","gpu":"GPU-00000000-0000-4000-8000-000000000000","text":"x"}`))
	f.Add([]byte("\n{}\n[1]\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := config.Paths{State: t.TempDir()}
		if err := EventLog(p).Append(text); err != nil {
			t.Fatal(err)
		}
		all, err := Events(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Time.IsZero() {
				t.Errorf("accepted %+v", e)
			}
		}
	})
}

// Any file is read without an error, and what is accepted is a whole record.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"slot":"slot1_1","gpu":"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001","begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"}` + "\n"))
	f.Add([]byte("{\n\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := config.Paths{State: t.TempDir()}
		if err := RecordLog(p).Append(text); err != nil {
			t.Fatal(err)
		}
		all, err := Records(p, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Slot == "" || r.End.IsZero() {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}
