package history

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/store"
)

// Writer appends events and records to their files. Only Run writes to the disk, so
// neither an admission nor the sampling waits for it.
type Writer struct {
	events, records store.Log
	log             *slog.Logger
	wake            chan struct{}

	// mu is never held over I/O.
	mu      sync.Mutex
	waiting []line
	lost    int
}

// line is one line on its way to a file.
type line struct {
	to   store.Log
	what any
}

// mostWaiting bounds the memory for lines that the disk does not take.
const mostWaiting = 4096

// NewWriter returns a writer of the node's events and records.
func NewWriter(p config.Paths, log *slog.Logger) *Writer {
	return &Writer{events: EventLog(p), records: RecordLog(p), log: log, wake: make(chan struct{}, 1)}
}

// Event appends an event, with the present time if it has none. It never waits.
func (w *Writer) Event(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	w.put(w.events, e)
}

// Record appends the record of a job. It never waits.
func (w *Writer) Record(r record.Job) { w.put(w.records, r) }

func (w *Writer) put(to store.Log, what any) {
	w.mu.Lock()
	if len(w.waiting) < mostWaiting {
		w.waiting = append(w.waiting, line{to, what})
	} else {
		w.lost++
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Run writes until the context ends, and then what is left.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			w.Flush()
			return
		case <-w.wake:
			w.Flush()
		}
	}
}

// Flush writes the lines that wait. A line that cannot be written is lost: each
// attempt logs that once, and jobs go on.
func (w *Writer) Flush() {
	w.mu.Lock()
	waiting, lost := w.waiting, w.lost
	w.waiting, w.lost = nil, 0
	w.mu.Unlock()
	text := map[store.Log][]byte{}
	for _, l := range waiting {
		b, err := json.Marshal(l.what)
		if err != nil {
			w.log.Error("a line of the history cannot be written", "err", err)
			continue
		}
		text[l.to] = append(append(text[l.to], b...), '\n')
	}
	for to, t := range text {
		if err := to.Append(t); err != nil {
			w.log.Error("history and records are incomplete", "err", err)
		}
	}
	if lost > 0 {
		w.log.Error("history and records are incomplete", "lines", lost, "err", "the disk was too slow")
	}
}
