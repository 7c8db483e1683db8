// Package systemd owns the unit files and the adapter to the service manager:
// readiness, watchdog, socket activation, and control of the
// gpuslot-mps@<uuid>.service instances. It knows nothing of GPUs beyond their
// UUIDs as instance names. Start at Units.
package systemd
