package admission

import (
	"fmt"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// slotlessMost starters in a row whose hooks were denied close the GPUs, for
// slotlessFor: then one more job shows whether HTCondor was mended.
const (
	slotlessMost = 3
	slotlessFor  = 10 * time.Minute
)

// slotless counts starters of HTCondor's own that do not show their slots. Their jobs
// are sent back and matched again without end. What jobs do does not count: only how
// the startd started the starter does. The zero value is ready.
type slotless struct {
	mu sync.Mutex
	// row are the starters since the last that showed its slot.
	row   map[process.ID]bool
	until time.Time
}

// deny counts a starter, and says whether it is a new one.
func (s *slotless) deny(starter starter.Starter, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := starter.ID
	if s.row[key] {
		return false
	}
	if s.row == nil || len(s.row) >= startersKept {
		s.row = map[process.ID]bool{}
	}
	s.row[key] = true
	if len(s.row) >= slotlessMost || now.Before(s.until) {
		s.until = now.Add(slotlessFor)
	}
	return true
}

// known ends the row: a starter showed its slot.
func (s *slotless) known() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row, s.until = nil, time.Time{}
}

// closed says why GPUs take no jobs; empty if they do.
func (s *slotless) closed(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.until) {
		return ""
	}
	return fmt.Sprintf("%d hooks in a row were denied: %v", len(s.row), starter.ErrSlotless)
}
