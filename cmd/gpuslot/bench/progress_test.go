package bench

import (
	"testing"
	"time"
)

func TestProgressText(t *testing.T) {
	at := Progress{Step: Step{Mode: MPS, Copies: 4, Repeat: 2}, Done: 6, All: 12, Elapsed: time.Minute}
	if got, want := at.Text(true), "[############............] 7/12 mps, 4 copies, repeat 2, about 1m0s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
