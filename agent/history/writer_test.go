package history

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWriterIsBounded: a disk that takes nothing bounds the memory, and the log says
// how many lines were lost.
func TestWriterIsBounded(t *testing.T) {
	var logged strings.Builder
	p := config.Paths{State: t.TempDir()}
	w := NewWriter(p, slog.New(slog.NewTextHandler(&logged, nil)))
	for i := range mostWaiting + 5 {
		w.Event(Event{Kind: EventPlan, Text: strconv.Itoa(i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx) // what is left is written at the end
	if all, err := Events(p); err != nil || len(all) != mostWaiting {
		t.Errorf("%d lines, want %d: %v", len(all), mostWaiting, err)
	}
	if !strings.Contains(logged.String(), "lines=5") {
		t.Errorf("logged %q, want 5 lost lines", logged.String())
	}
	nowhere := NewWriter(config.Paths{State: "/proc/nowhere"}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	nowhere.Event(Event{Kind: EventPlan})
	nowhere.Flush() // no panic, no endless loop
}

// TestWriterRuns: events and records go to files of their own while Run runs.
func TestWriterRuns(t *testing.T) {
	p := config.Paths{State: t.TempDir()}
	w := NewWriter(p, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	begin := time.Now()
	w.Event(Event{Kind: EventStart, Text: "started"})
	w.Record(record.Job{Slot: "slot1_1", Begin: begin, End: begin})
	var events []Event
	var records []record.Job
	for end := time.Now().Add(2 * time.Minute); len(events) == 0 || len(records) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited two minutes for an event and a record: %v, %v", events, records)
		}
		var errEvents, errRecords error
		events, errEvents = Events(p)
		records, errRecords = Records(p, begin)
		if errEvents != nil || errRecords != nil {
			t.Fatal(errEvents, errRecords)
		}
	}
	if e := events[0]; e.Text != "started" || e.Time.Before(begin) {
		t.Errorf("the event is %+v", e)
	}
	cancel()
	<-done
}
