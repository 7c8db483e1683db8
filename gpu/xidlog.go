package gpu

import (
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// KernelXID is one Xid line of the kernel log. It names the process, which
// NVML's events do not.
type KernelXID struct {
	PCI PCIBusID
	XID int
	// GPUInstance and ComputeInstance are MIG ids, or NoInstance.
	GPUInstance, ComputeInstance int
	// PID is the process in error, 0 if the line names none.
	PID int
	// Process is its name, which its owner chose; empty if the line names none.
	Process string
}

// ParseKernelXID reads a message of the kernel, with or without what /dev/kmsg
// puts before it; ok is false for any other line. The message must begin as the
// driver's do: what other messages of the kernel quote, such as the name of a
// process or of a file, a user chose. The form is that of the open kernel modules
// (kernel_rc.c, krcReportXid):
//
//	NVRM: Xid (PCI:0000:1a:00 GPU-I:03 GPU-CI:00): 31, pid=1234, name=python, Ch 00000008, …
//	NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000
func ParseKernelXID(line string) (x KernelXID, ok bool) {
	rest, found := strings.CutPrefix(kernelText(line), "NVRM: Xid (PCI:")
	where, rest, closed := strings.Cut(rest, "): ")
	if !found || !closed {
		return KernelXID{}, false
	}
	number, text, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 16)
	if err != nil {
		return KernelXID{}, false
	}
	x = KernelXID{XID: int(n), GPUInstance: NoInstance, ComputeInstance: NoInstance}
	fields := strings.Split(where, " ")
	// The whole address leaves a user no room: the kernel begins the line of a crash with the
	// name of the process, of 15 bytes.
	if x.PCI, err = ParsePCIBusID(fields[0]); err != nil || fields[0]+".0" != string(x.PCI) {
		return KernelXID{}, false
	}
	for _, f := range fields[1:] {
		if !x.instance(f) {
			return KernelXID{}, false
		}
	}
	x.process(text)
	return x, true
}

func (x *KernelXID) instance(field string) (ok bool) {
	name, value, _ := strings.Cut(field, ":")
	n, err := strconv.ParseUint(value, 10, 16)
	switch name {
	case "GPU-I":
		x.GPUInstance = int(n)
	case "GPU-CI":
		x.ComputeInstance = int(n)
	default:
		return false
	}
	return err == nil
}

// process reads " pid=1234, name=python, …". The pid stands first: what follows
// is a name that a user chose, and must not be able to name another process.
func (x *KernelXID) process(text string) {
	text, found := strings.CutPrefix(text, " pid=")
	if !found {
		return
	}
	pid, rest, _ := strings.Cut(text, ",")
	n, err := strconv.ParseUint(pid, 10, 31)
	if err != nil || n == 0 { // '<unknown>'
		return
	}
	x.PID = int(n)
	if name, found := strings.CutPrefix(rest, " name="); found {
		name, _, _ = strings.Cut(name, ", ")
		x.Process = foreign.Text(strings.TrimRight(name, ",\n"), maxProcessName)
	}
}

// kernelText is the text of a record of /dev/kmsg ("12,839,140900,-;text"), or a
// line that has no such head; empty if a program wrote the record: the kernel's
// facility is 0, the upper bits of the first number (Documentation/ABI/testing/
// dev-kmsg).
func kernelText(line string) string {
	head, text, found := strings.Cut(line, ";")
	priority, _, several := strings.Cut(head, ",")
	n, err := strconv.ParseUint(priority, 10, 32)
	switch {
	case !found || !several || err != nil:
		return line
	case n>>3 != 0:
		return ""
	}
	return text
}

// maxProcessName is the kernel's TASK_COMM_LEN and room for the driver's own.
const maxProcessName = 64
