package hardware

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// fakeSource is a node whose GPUs can come and go.
type fakeSource struct {
	Recorded
	mu  sync.Mutex
	inv gpu.Inventory
	err error
	// hangs: it answers when its context ends.
	hangs bool
}

func (s *fakeSource) Inventory(ctx context.Context) (gpu.Inventory, []error, error) {
	if s.hangs {
		<-ctx.Done()
		return gpu.Inventory{}, nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inv, nil, s.err
}

func (s *fakeSource) set(gpus int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inv, s.err = gpu.Inventory{GPUs: make([]gpu.GPU, gpus)}, err
}

func newReader(expected int) (*Reader, *fakeSource) {
	s := &fakeSource{}
	return New(Options{Source: s, Expected: expected, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}), s
}

// TestAwait: the wait ends with the first GPU, and is bounded. Each reason is reported once.
func TestAwait(t *testing.T) {
	broken := errors.New("the NVIDIA kernel driver is not loaded")
	for name, c := range map[string]struct {
		expected, gpus int
		err            error
		comes          time.Duration
		min, max       time.Duration
		reasons        int
	}{
		"GPUs are there":              {1, 1, nil, 0, 0, 0, 0},
		"the driver does not come":    {1, 0, broken, 0, time.Minute, time.Minute, 1},
		"a node without GPUs":         {0, 0, nil, 0, 0, 0, 0},
		"GPUs on the bus alone":       {1, 0, nil, 0, time.Minute, time.Minute, 1},
		"the driver comes meanwhile":  {1, 0, broken, 5 * time.Second, 5 * time.Second, 7 * time.Second, 1},
		"it comes on a node with one": {1, 0, nil, 5 * time.Second, 5 * time.Second, 7 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, s := newReader(c.expected)
			s.set(c.gpus, c.err)
			if c.comes > 0 {
				go func() { time.Sleep(c.comes); s.set(1, nil) }()
			}
			begin, reasons := time.Now(), []string(nil)
			r.Await(t.Context(), time.Minute, func(why string) { reasons = append(reasons, why) })
			if took := time.Since(begin); took < c.min || took > c.max || len(reasons) != c.reasons {
				t.Errorf("%s: waited %s, for %q", name, took, reasons)
			}
		})
	}
}

// TestInventoryHasADeadline: a driver that hangs is given up.
func TestInventoryHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReader(1)
		s.hangs = true
		if _, _, err := r.Inventory(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestMissing(t *testing.T) {
	r, _ := newReader(2)
	one := gpu.Inventory{GPUs: make([]gpu.GPU, 1)}
	if why := r.Missing(one, nil); why != "" {
		t.Errorf("one of two is there, and the others are the plan's concern: %s", why)
	}
	if why := r.Missing(gpu.Inventory{}, nil); !strings.HasPrefix(why, "2 NVIDIA devices are on the PCI bus") {
		t.Errorf("%q", why)
	}
	if why := r.Missing(one, errors.New("broken")); !strings.HasPrefix(why, "the inventory cannot be read: broken") {
		t.Errorf("%q", why)
	}
}

// TestMismatch: a fresh process is asked in one round of four, and in each while it could not use the
// driver. What is not known changes nothing.
func TestMismatch(t *testing.T) {
	r, _ := newReader(1)
	calls, why, err := 0, "", error(nil)
	r.Mismatch = func(context.Context) (string, error) { calls++; return why, err }
	round := uint64(0)
	next := func(now bool) string { round++; return r.Unusable(t.Context(), round, now) }
	var asked []int
	for range 8 {
		before := calls
		next(false)
		asked = append(asked, calls-before)
	}
	if !slices.Equal(asked, []int{1, 0, 0, 0, 1, 0, 0, 0}) {
		t.Errorf("asked in the rounds %v", asked)
	}
	round++ // the next is not one of four
	why = "another version"
	if next(false) != "" || next(true) != why || next(false) != why || r.Healed() {
		t.Errorf("%d questions, healed %v", calls, r.Healed())
	}
	why, err = "", errors.New("no processes left")
	if next(false) != "another version" || r.Healed() {
		t.Error("an error of the question opened the GPUs")
	}
	err = nil
	if next(false) != "" || !r.Healed() {
		t.Error("the driver can be used again")
	}
}

// TestDriverHangs: a fresh process that hangs in the driver is waited for once, not by every round,
// and no second one is started.
func TestDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newReader(1)
		calls, hangs := atomic.Int64{}, make(chan struct{})
		r.Mismatch = func(context.Context) (string, error) {
			calls.Add(1)
			<-hangs // although its context ends
			return "another version", nil
		}
		begin := time.Now()
		for round := range uint64(3 * mismatchEvery) {
			r.Unusable(t.Context(), round, false)
		}
		if took := time.Since(begin); took > mismatchWait || calls.Load() != 1 {
			t.Errorf("the rounds waited %s for %d processes", took, calls.Load())
		}
		close(hangs)
		synctest.Wait()
		if r.Unusable(t.Context(), 0, false) == "" {
			t.Error("the late answer was lost")
		}
	})
}

func TestExpectedGPUs(t *testing.T) {
	sys := t.TempDir()
	for name, d := range map[string][2]string{
		"0000:3b:00.0": {"0x10de\n", "0x030200\n"}, // 3D controller
		"0000:5e:00.0": {"0x10de\n", "0x030000\n"}, // VGA
		"0000:5e:00.1": {"0x10de\n", "0x040300\n"}, // its audio function
		"0000:00:02.0": {"0x8086\n", "0x030000\n"}, // another vendor's
	} {
		dir := filepath.Join(sys, "bus/pci/devices", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, f := range []string{"vendor", "class"} {
			if err := os.WriteFile(filepath.Join(dir, f), []byte(d[i]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := ExpectedGPUs(sys); n != 2 {
		t.Errorf("ExpectedGPUs = %d, want 2", n)
	}
	if n := ExpectedGPUs(filepath.Join(sys, "nothing")); n != 0 {
		t.Errorf("ExpectedGPUs without a bus = %d", n)
	}
}
