package deep

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestList: one look serves all processes that began before it, also for another look at a later time. What began
// since, what is too old and what failed are looked for again.
func TestList(t *testing.T) {
	looks, failed := 0, errors.New("it failed")
	var err error
	find := func() ([]string, error) { looks++; return []string{"/daemons"}, err }
	const younger = 1 << 63
	l := &List{}
	ask := func(began uint64, want int, wantErr error) {
		t.Helper()
		if got, err := l.For(began, find); !slices.Equal(got, []string{"/daemons"}) || !errors.Is(err, wantErr) {
			t.Errorf("%v, %v", got, err)
		}
		if looks != want {
			t.Errorf("%d looks, want %d", looks, want)
		}
	}
	err = failed
	ask(1, 1, failed)
	err = nil
	ask(1, 2, nil)
	l.at = younger - 1 // so that it cannot become too old during the test
	for range 48 {
		ask(1, 2, nil)
	}
	l.at -= keptList
	ask(l.at, 3, nil)
	ask(younger, 4, nil)
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		t.Fatal(err)
	}
	l.at = max(1, uint64(boot.Sec)*process.TicksPerSecond-keptList)
	ask(0, 5, nil)
	l = nil
	ask(0, 6, nil)
	ask(0, 7, nil)
}
