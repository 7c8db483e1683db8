package faults

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
)

const watched = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")

// fakeAlarms report what the test says.
type fakeAlarms struct {
	events     []gpu.Event
	conditions []gpu.Condition
	err        error
}

func (f *fakeAlarms) Watch(_ context.Context, report func(gpu.Event)) error {
	for _, e := range f.events {
		report(e)
	}
	return f.err
}

func (f *fakeAlarms) Conditions(context.Context, []gpu.UUID) ([]gpu.Condition, error) {
	return f.conditions, f.err
}

type texts []string

func (l *texts) Event(e history.Event) { *l = append(*l, e.Text) }

// newTestWatcher is a watcher of one GPU.
func newTestWatcher(t *testing.T, a Alarms, log *bytes.Buffer) (w *Watcher, events *texts, n *Node) {
	events, n = &texts{}, &Node{GPUs: []gpu.UUID{watched}, Planned: true}
	return NewWatcher(Options{
		Alarms: a, File: filepath.Join(t.TempDir(), "troubles.json"), Events: events,
		Log: slog.New(slog.NewTextHandler(log, nil)), Node: func() Node { return *n }, Changed: func() {},
	}), events, n
}

// TestFaultsAreKeptUnseen: they are kept also while the GPUs do not say how they are.
func TestFaultsAreKeptUnseen(t *testing.T) {
	mute := errors.New("mute")
	w, events, _ := newTestWatcher(t, &fakeAlarms{err: mute}, &bytes.Buffer{})
	w.note(gpu.Event{GPU: watched, Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	if len(*events) != 1 || !strings.Contains((*events)[0], "79") {
		t.Errorf("events %q", *events)
	}
	if err := w.Look(t.Context(), []gpu.UUID{watched}, nil); !errors.Is(err, mute) {
		t.Fatalf("%v", err)
	}
	next := NewWatcher(w.o)
	if err := next.Read(); err != nil {
		t.Fatal(err)
	}
	if !next.Verdict(watched, time.Now()).Closed() {
		t.Error("the next agent does not know of it")
	}
	if err := next.Open(watched); err != nil {
		t.Fatal(err)
	}
	if after := NewWatcher(w.o); after.Read() != nil || after.Verdict(watched, time.Now()).Closed() {
		t.Error("what an operator opened is closed again")
	}
}

// TestUnknownXid: its event says that the GPU stays open, and what to do.
func TestUnknownXid(t *testing.T) {
	text := textOf(gpu.Event{GPU: watched, Kind: gpu.EventXID, XID: 999}, Verdict{})
	if !strings.Contains(text, "leaves the GPU open") {
		t.Errorf("%q", text)
	}
}

// TestTextOfClosure: the event that closed its GPU names its Xid once.
func TestTextOfClosure(t *testing.T) {
	e := gpu.Event{GPU: watched, Kind: gpu.EventXID, XID: 31}
	reason := gpu.XIDByNumber(31).String() + ": it opens when its MPS server is active again"
	for v, want := range map[string]string{
		reason:              reason,
		"a fault of before": gpu.XIDByNumber(31).String() + ": a fault of before",
	} {
		if got := textOf(e, Verdict{Class: ClosedForServer, Reason: v}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestQuietWithoutDriver: a node without a plan logs no reason of the events' own; one with
// a plan logs it once.
func TestQuietWithoutDriver(t *testing.T) {
	for planned, want := range map[bool]int{false: 0, true: 1} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			w, _, n := newTestWatcher(t, &fakeAlarms{err: errors.New("NVML is not installed")}, &log)
			n.Planned = planned
			ctx, cancel := context.WithTimeout(t.Context(), 4*watchAgain)
			defer cancel()
			w.Watch(ctx)
			if got := bytes.Count(log.Bytes(), []byte("\n")); got != want {
				t.Errorf("planned %v: %d lines, want %d:\n%s", planned, got, want, &log)
			}
		})
	}
}

// TestWatchReports: events come in, and change something.
func TestWatchReports(t *testing.T) {
	f := &fakeAlarms{events: []gpu.Event{{GPU: watched, Kind: gpu.EventXID, XID: 79}}}
	w, events, _ := newTestWatcher(t, f, &bytes.Buffer{})
	ctx, cancel := context.WithCancel(t.Context())
	w.o.Changed = cancel
	w.Watch(ctx)
	if !w.Verdict(watched, time.Now()).Closed() || !slices.ContainsFunc(*events, func(s string) bool { return s != "" }) {
		t.Errorf("events %q", *events)
	}
}

type told chan string

func (c told) Event(e history.Event) { c <- e.Text }

// TestXidWithoutProcess: a line that names no process is no event.
func TestXidWithoutProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	hold, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Close() }()
	events := make(told)
	w := NewWatcher(Options{Events: events, Log: slog.New(slog.DiscardHandler), Node: func() Node {
		return Node{GPUs: []gpu.UUID{watched}, PCI: map[gpu.PCIBusID]gpu.UUID{"0000:1a:00.0": watched}}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.ReadKernelLog(ctx, path); close(ended) }()
	for _, text := range []string{"32, Channel ID 00000009", "31, pid=77, name=python, Ch 8"} {
		if _, err := hold.WriteString("4,1,1,-;NVRM: Xid (PCI:0000:1a:00): " + text + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if text := <-events; !strings.Contains(text, "process 77 (python)") {
		t.Error(text)
	}
	cancel()
	select {
	case <-ended:
	case text := <-events:
		t.Error(text)
	}
}
