package backoff

import (
	"testing"
	"time"
)

// TestVain: each time that room is kept in vain the request rests for twice as long, up to sixteen
// units. Others do not, nor does one that took its room, and a week later all is forgotten.
func TestVain(t *testing.T) {
	now := time.Unix(1e9, 0)
	var v Vain[string]
	if v.Rests("a", now) {
		t.Error("rests before anything was kept")
	}
	for i, want := range []time.Duration{2, 4, 8, 16, 16} {
		v = v.Note("a", now, time.Hour)
		now = now.Add(want * time.Hour)
		if !v.Rests("a", now.Add(-1)) || v.Rests("a", now) || v.Rests("b", now.Add(-1)) {
			t.Errorf("after %d times: %+v at %s", i+1, v, now)
		}
	}
	before := v
	if took := v.Took("a").Note("a", now, time.Hour); took.Rests("a", now.Add(2*time.Hour)) || len(before) != 1 {
		t.Errorf("a job took its room: %+v, before %+v", took, before)
	}
	if v = v.Note("b", now.Add(forgotten-1), time.Hour); len(v) != 2 {
		t.Errorf("before a week is over: %+v", v)
	}
	now = now.Add(forgotten)
	if v = v.Note("a", now, time.Hour); v.Rests("a", now.Add(2*time.Hour)) {
		t.Errorf("a week later: %+v", v)
	}
}
