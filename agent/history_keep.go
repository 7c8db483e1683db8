package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/gpuslot/gpuslot/agent/store"
)

// keeper writes records and events from a goroutine of its own: neither an
// admission nor the sampling waits for a disk.
type keeper struct {
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	waiting []kept
	lost    int
}

// kept is one line on its way to a file.
type kept struct {
	to   store.Log
	what any
}

// mostWaiting bounds the memory for lines that a disk does not take.
const mostWaiting = 4096

func newKeeper(log *slog.Logger) *keeper { return &keeper{log: log, wake: make(chan struct{}, 1)} }

// put hands a line over. It never waits.
func (k *keeper) put(to store.Log, what any) {
	k.mu.Lock()
	if len(k.waiting) < mostWaiting {
		k.waiting = append(k.waiting, kept{to, what})
	} else {
		k.lost++
	}
	k.mu.Unlock()
	nudge(k.wake)
}

// run writes until the context ends, then what is left.
func (k *keeper) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			k.write()
			return
		case <-k.wake:
			k.write()
		}
	}
}

// write writes what waits. What cannot be written is lost: it is told once for
// each attempt, and jobs go on.
func (k *keeper) write() {
	k.mu.Lock()
	waiting, lost := k.waiting, k.lost
	k.waiting, k.lost = nil, 0
	k.mu.Unlock()
	text := map[store.Log][]byte{}
	for _, w := range waiting {
		b, err := json.Marshal(w.what)
		if err != nil {
			k.log.Error("a line of the history cannot be written", "err", err)
			continue
		}
		text[w.to] = append(append(text[w.to], b...), '\n')
	}
	for to, t := range text {
		if err := to.Append(t); err != nil {
			k.log.Error("history and records are incomplete", "err", err)
		}
	}
	if lost > 0 {
		k.log.Error("history and records are incomplete", "lines", lost, "err", "the disk was too slow")
	}
}
