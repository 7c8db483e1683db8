package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is USER_HZ, which proc(5) counts start times in; it is 100 on
// every architecture that CUDA runs on.
const TicksPerSecond = 100

// Ticks is a time in whole clock ticks, as start times count from boot on.
func Ticks(d time.Duration) uint64 { return uint64(d / (time.Second / TicksPerSecond)) }

// SinceBoot is how long the kernel runs; an error means that it does not tell.
func SinceBoot() (time.Duration, error) {
	var boot unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return time.Duration(boot.Nano()), err
}

// TicksAt is a time in clock ticks since boot, rounded up; an error means that
// the kernel does not tell how long it runs.
func TicksAt(at time.Time) (uint64, error) {
	boot, err := SinceBoot()
	if err != nil {
		return 0, err
	}
	return Ticks(max(boot-time.Since(at), 0)) + 1, nil
}

// Began is when a process began, by its start time in clock ticks since boot.
func Began(started uint64, now time.Time) time.Time {
	ticks, err := TicksAt(now)
	if err != nil || started > ticks {
		return now
	}
	return now.Add(-time.Duration(ticks-started) * (time.Second / TicksPerSecond))
}
