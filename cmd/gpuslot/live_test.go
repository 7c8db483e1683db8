package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func ptr[T any](v T) *T { return &v }

// busy is a node with two GPUs and jobs of every kind.
func busy(since time.Time) api.Status {
	return api.Status{Host: "wn1", Version: "1.0", Driver: "550.163.01", PlanApplied: since, Warnings: []string{"A warning."}, GPUs: []api.StatusGPU{
		{UUID: "GPU-a", Index: 0, Mode: "mps", Shares: 4, PoolMiB: 80000, UsedMiB: 24000, Accept: true, UseMiB: ptr(int64(15000)), SM: ptr(.5), Watts: ptr(240.4),
			Servers: []api.StatusServer{{PID: 9, Status: "ACTIVE", Clients: 2}},
			Jobs: []api.StatusJob{
				{Slot: "slot1_1", ID: "7.0", Account: "alice", BudgetMiB: 8000, UseMiB: ptr(int64(6000)), Processes: ptr(1), SMMin: ptr(.25), SM: ptr(.3), SMMax: ptr(.5), Joules: ptr(100.), Since: since},
				{Slot: "slot1_2", ID: "7.1", Account: "bob", BudgetMiB: 8000, UseMiB: ptr(int64(9000)), Processes: ptr(2), SMMax: ptr(.2), Joules: ptr(50.), Since: since},
				{Slot: "slot1_3", ID: "7.2", Account: "bob", BudgetMiB: 8000, Since: since},
			}},
		{UUID: "GPU-b", Index: 1, Mode: "mps", Shares: 4, PoolMiB: 32000, Reason: "Xid 79"},
	}}
}

// slotOrder is how the slots follow each other in a text.
func slotOrder(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], "slot") {
			out = append(out, strings.TrimPrefix(f[0], "slot1_"))
		}
	}
	return strings.Join(out, " ")
}

// TestTopOrders: the greediest first, the unknown last.
func TestTopOrders(t *testing.T) {
	start := time.Unix(1760000000, 0)
	s := busy(start)
	for by, want := range map[string]string{byVRAM: "2 1 3", bySM: "1 2 3", byWatts: "2 1 3"} {
		p := newPower()
		p.see(s, start)
		later := busy(start)
		later.GPUs[0].Jobs[0].Joules, later.GPUs[0].Jobs[1].Joules = ptr(120.), ptr(150.)
		p.see(later, start.Add(2*time.Second))
		rows := jobRows(later, p)
		sortRows(rows, by)
		var b strings.Builder
		topTable(rows, start.Add(time.Hour)).Print(&b)
		if got := slotOrder(b.String()); got != want {
			t.Errorf("by %s: %s, want %s:\n%s", by, got, want, b.String())
		}
		for _, want := range []string{"10 ", "50 ", "25-50 %", "at most 20 %", "over its budget", "1h00m"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in:\n%s", want, b.String())
			}
		}
	}
}

// TestPowerIsOfOneJob: the next job of a slot begins again, the past is short.
func TestPowerIsOfOneJob(t *testing.T) {
	p, start := newPower(), time.Unix(1760000000, 0)
	for i := range 20 {
		s := busy(start)
		s.GPUs[0].Jobs[0].Joules = ptr(float64(i * i * 10))
		p.see(s, start.Add(time.Duration(i)*time.Second))
	}
	s := busy(start)
	if w := p.watts("GPU-a", s.GPUs[0].Jobs[0]); w == nil || *w < 300 {
		t.Errorf("%v W; the mean of the last seconds is about 330", w)
	}
	if n := len(p.jobs[keyOf("GPU-a", s.GPUs[0].Jobs[0])]); n > 8 {
		t.Errorf("%d looks are kept", n)
	}
	p.see(busy(start.Add(time.Minute)), start.Add(time.Minute))
	if w := p.watts("GPU-a", busy(start.Add(time.Minute)).GPUs[0].Jobs[0]); w != nil {
		t.Errorf("a new job has %v W at its first look", *w)
	}
}

func TestPainted(t *testing.T) {
	text := headMark + "TITLE\nshort\na line that is too long\nbad\x1b[31m\nfive\nsix\n"
	got := painted(text, 10, 5)
	for _, want := range []string{home + bold + "TITLE" + plain + show.ClearLine, "a line th…", "bad?[31m", "… and 2 m…"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Count(got, "\n") != 4 || strings.HasSuffix(got, "\n") {
		t.Errorf("it scrolls: %q", got)
	}
}

// pty is a terminal: what a program writes to slave comes out of what.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 120}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// screen collects what a terminal shows.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

// TestTopLive in a terminal: frames, an agent that goes and comes back, a key,
// and everything as it was at the end.
func TestTopLive(t *testing.T) {
	master, slave := pty(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var shown screen
	go func() { _, _ = io.Copy(&shown, master) }()
	var mu sync.Mutex
	gone, pressed := false, make(chan byte, 1)
	order := byVRAM
	l := topLive("", &order)
	l.ask = func(context.Context) (api.Status, error) {
		mu.Lock()
		defer mu.Unlock()
		if gone {
			return api.Status{}, errors.New("connection refused")
		}
		return busy(time.Now()), nil
	}
	l.key = func(k byte) { pressed <- k }
	done := make(chan error, 1)
	go func() { done <- l.run(t.Context(), slave, slave) }()
	until := func(text string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); !shown.has(text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited five minutes for %q to be shown", text)
			}
		}
	}
	for _, text := range []string{enterScreen, "by vram", bold + "SLOT", "slot1_2", "over its budget"} {
		until(text)
	}
	mu.Lock()
	gone = true
	mu.Unlock()
	until("no answer: connection refused")
	for _, k := range "vq" {
		if _, err := master.WriteString(string(k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if k := <-pressed; k != 'v' {
		t.Errorf("the key %q came", k)
	}
	until(leaveScreen)
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, %v; it was %+v", after, err, before)
	}
}

// TestLiveWithoutTerminal: plain text, one frame after the other, no escapes.
func TestLiveWithoutTerminal(t *testing.T) {
	var out strings.Builder
	order := byVRAM
	l := topLive("", &order)
	l.ask, l.frames = func(context.Context) (api.Status, error) { return busy(time.Now()), nil }, 2
	if err := l.run(t.Context(), strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "slot1_1"); n != 2 || strings.ContainsAny(out.String(), "\x1b\x00") {
		t.Errorf("%d frames: %q", n, out.String())
	}
	l.ask = func(context.Context) (api.Status, error) { return api.Status{}, errors.New("nobody there") }
	if err := l.run(t.Context(), strings.NewReader(""), &out); err == nil {
		t.Error("an agent that is not there is no error")
	}
}
