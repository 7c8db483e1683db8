package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
)

// Who does things.
const (
	byAgent    = "agent"
	byOperator = "operator"
)

// note keeps an event.
func (a *Agent) note(e history.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Slot = shortName(e.Slot)
	a.keeper.put(history.EventLog(a.view.Load().config.Paths), e)
}
