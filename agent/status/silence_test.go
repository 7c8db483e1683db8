package status

import (
	"testing"
	"time"
)

func TestSilentFor(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1760000000+s, 0) }
	for name, c := range map[string]struct {
		asked, answers, now time.Time
		want                time.Duration
	}{
		"it asks":                         {at(85), at(0), at(100), 0},
		"a minute ago":                    {at(40), at(0), at(100), 0},
		"longer ago":                      {at(39), at(0), at(100), 61 * time.Second},
		"it never asked":                  {time.Time{}, at(0), at(100), 100 * time.Second},
		"it has just begun to answer":     {time.Time{}, at(50), at(100), 0},
		"it asked, and came back lately":  {at(10), at(50), at(100), 0},
		"it came back, and has not asked": {at(10), at(50), at(200), 150 * time.Second},
	} {
		if got := silentFor(c.asked, c.answers, c.now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
