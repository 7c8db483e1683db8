package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLayoutTakesLong: while a GPU's layout changes for minutes, the watchdog is fed
// and the other GPU takes jobs.
func TestLayoutTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := migAgent(t, "3g.20gb,2g.10gb", "")
		ta.restart()
		seen := 0
		f.Happens = func(what string) {
			if what != "create" {
				return
			}
			time.Sleep(170 * time.Second)
			seen++
			if !ta.heart.well() || time.Since(time.Unix(0, ta.heart.last.Load())) > 2*pings {
				t.Errorf("the last beat is %s old", time.Since(time.Unix(0, ta.heart.last.Load())))
			}
			if why := ta.reason(1); why != "" {
				t.Errorf("the other GPU is closed: %s", why)
			}
		}
		ta.writeConfig(migConfig("1g.5gb,1g.5gb", ""))
		ta.apply(true)
		if seen == 0 || ta.profiles() == "" {
			t.Errorf("%d instances were made: %s", seen, ta.profiles())
		}
	})
}
