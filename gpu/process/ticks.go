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
