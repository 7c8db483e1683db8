package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestRestart: a daemon with clients is restarted by force only, after they left.
func TestRestart(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	var happened []string
	ta.daemons.happens = func(what string) { happened = append(happened, what) }
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	loopEnds := make(chan struct{})
	loop, stop := context.WithCancel(ctx)
	go func() { defer close(loopEnds); ta.loop(loop, nil) }()
	defer func() { stop(); <-loopEnds }()
	ta.daemons.change(uuid(1), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200, 201}}}
	})
	if _, err := ta.answers.restart(ctx, "1", false); err == nil || !strings.Contains(err.Error(), "GPU 1 has 2 MPS clients (pids 200 201)") {
		t.Errorf("with clients: %v", err)
	}
	if len(happened) > 0 {
		t.Errorf("happened: %q", happened)
	}
	text, err := ta.answers.restart(ctx, string(uuid(1)), true)
	if err != nil || !strings.HasPrefix(text, "control daemon of GPU 1 ("+string(uuid(1))+") restarted: pid ") {
		t.Errorf("forced: %q, %v", text, err)
	}
	if want := []string{"end [200 201]", "restart " + string(uuid(1))}; !slices.Equal(happened, want) {
		t.Errorf("happened: %q, want %q", happened, want)
	}
	for name, want := range map[string]string{
		"7": `there is no GPU "7" in the plan`, "": `there is no GPU ""`, "00000000": "begins the UUIDs of 2 GPUs",
	} {
		if _, err := ta.answers.restart(ctx, name, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
