package faults

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzRestore: a GPU that an agent closed for a fault is closed for the next.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","class":"reset","what":"x","do":"y","xid":79,"since":"2026-11-21T09:42:50Z"}]`))
	f.Add([]byte(`[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","class":"of a newer agent"},{"gpu":""}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var saved []Saved
		if json.Unmarshal(text, &saved) != nil {
			return
		}
		x, last := &Tracker{}, map[string]bool{}
		x.Restore(saved)
		for _, s := range saved {
			last[string(s.GPU)] = s.Class != ""
		}
		again := &Tracker{}
		again.Restore(x.Saved())
		for _, s := range saved {
			if _, known := x.find(s.GPU); known && last[string(s.GPU)] != again.Verdict(s.GPU, time.Time{}).Closed() {
				t.Fatalf("%s: %+v", text, again.Verdict(s.GPU, time.Time{}))
			}
		}
	})
}
