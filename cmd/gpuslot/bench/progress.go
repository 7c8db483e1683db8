package bench

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Text is the bar, if there is to be one, and what runs now. The time left supposes that the
// runs to come take as long as those before.
func (at Progress) Text(bar bool) string {
	s := at.Step
	text := fmt.Sprintf("%d/%d %s, %d copies, repeat %d", at.Done+1, at.All, s.Mode, s.Copies, s.Repeat)
	if bar {
		text = show.Bar(float64(at.Done)/float64(at.All), 24) + " " + text
	}
	if at.Done > 0 {
		left := at.Elapsed / time.Duration(at.Done) * time.Duration(at.All-at.Done)
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	return text
}
