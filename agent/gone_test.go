package agent

import (
	"slices"
	"strings"
	"testing"
)

// TestGPUGone: a GPU that the driver lists no more is closed with the reason where
// the plan still has it, since the next one was refused.
func TestGPUGone(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	inv := inventoryOf(2)
	inv.GPUs = slices.Delete(inv.GPUs, 0, 1)
	ta.hw.set(inv, nil)
	ta.writeConfig("[sharing]\nshares = 47\n") // more than the pool holds
	ta.apply(true)
	if why := ta.reason(0); !strings.HasPrefix(why, "it is not in the node any more") {
		t.Errorf("reason = %q", why)
	}
	if why := ta.reason(1); why != "" {
		t.Errorf("its neighbour is closed: %s", why)
	}
}
