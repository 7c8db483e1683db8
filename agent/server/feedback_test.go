package server

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/together"
)

func TestFeedbackIsThatOfTheWorst(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1760000000+s, 0) }
	type worst struct {
		OK bool
		At time.Time
	}
	type step struct {
		op api.Op
		ok bool
		at int64
	}
	for name, c := range map[string]struct {
		steps []step
		want  *worst
	}{
		"nobody asked":              {nil, nil},
		"one program":               {[]step{{api.OpMonitor, true, 1}, {api.OpMonitor, true, 5}}, &worst{OK: true, At: at(5)}},
		"one of two is quiet":       {[]step{{api.OpUsage, true, 1}, {api.OpMonitor, true, 9}}, &worst{OK: true, At: at(1)}},
		"the last did not work":     {[]step{{api.OpUsage, true, 1}, {api.OpMonitor, true, 2}, {api.OpUsage, false, 3}}, &worst{At: at(1)}},
		"one never worked":          {[]step{{api.OpUsage, false, 1}, {api.OpMonitor, true, 2}}, &worst{}},
		"it works after a failure":  {[]step{{api.OpUsage, false, 1}, {api.OpUsage, true, 2}}, &worst{OK: true, At: at(2)}},
		"the older one comes later": {[]step{{api.OpMonitor, true, 4}, {api.OpUsage, true, 6}}, &worst{OK: true, At: at(4)}},
	} {
		var f Feedback
		for _, s := range c.steps {
			f.Note(s.op, s.ok, at(s.at))
		}
		ok, got, asked := f.Worst()
		if asked != (c.want != nil) || asked && (ok != c.want.OK || !got.Equal(c.want.At)) {
			t.Errorf("%s: %t, %s, %t, want %+v", name, ok, got, asked, c.want)
		}
	}
}

// TestFeedbackTogether: many conversations end at a time.
func TestFeedbackTogether(t *testing.T) {
	together.Methods(t, &Feedback{}, api.OpUsage, true, time.Unix(1760000000, 0))
}
