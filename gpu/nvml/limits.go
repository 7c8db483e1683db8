package nvml

// HasMemoryLimits reports whether the driver exports the call that holds the
// VRAM of a cgroup to a limit (R615 on). It asks the loaded library only.
func (l *Library) HasMemoryLimits() bool {
	return l.lib.Extensions().LookupSymbol("nvmlDeviceSetMemoryLimits_v1") == nil
}
