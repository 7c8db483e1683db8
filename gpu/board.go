package gpu

// Board is how a GPU's board does. It changes slowly: a reading may repeat the
// one of some seconds before.
type Board struct {
	// Temperature of the chip in degrees Celsius.
	Temperature Measured[uint32]
	// PowerLimit in mW is the one that is enforced now.
	PowerLimit Measured[uint32]
	// Clocks in MHz, of the multiprocessors and of the memory.
	SMClock, MemoryClock Measured[uint32]
	// Limits are what holds the clocks back now.
	Limits Measured[ClockLimits]
	// ECC errors over the board's life. Absent where ECC is off.
	Corrected, Uncorrected Measured[uint64]
}

// ClockLimits are reasons for lower clocks, the bits of NVML's
// nvmlClocksThrottleReason… of which only those that slow work down count here.
type ClockLimits uint64

// ClockLimit is one of them.
type ClockLimit struct {
	// Name is nvidia-smi's (clocks_event_reasons.sw_power_cap).
	Name string
	Bit  ClockLimits
}

// AllClockLimits lists them, in the order of their bits (nvml.h).
func AllClockLimits() []ClockLimit {
	return []ClockLimit{
		{"sw_power_cap", 0x04}, {"hw_slowdown", 0x08}, {"sw_thermal_slowdown", 0x20},
		{"hw_thermal_slowdown", 0x40}, {"hw_power_brake_slowdown", 0x80},
	}
}
