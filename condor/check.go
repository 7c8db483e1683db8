package condor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// check reports everything with which the rendered text could not be true, or
// would not even be the configuration that it looks like.
func (n Node) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	used := n.CPUOnly
	seen := map[gpu.UUID]bool{}
	for _, d := range n.Devices {
		if err := d.check(); err != nil {
			bad("%s: %w", d.UUID, err)
		}
		if seen[d.UUID] {
			bad("%s is there twice", d.UUID)
		}
		seen[d.UUID] = true
		used.CPUs += d.Share.CPUs
		used.Memory += d.Share.Memory
	}
	if used.CPUs > n.CPUs || used.Memory > n.Memory || n.CPUs < 1 || n.Memory < 1 {
		bad("the slots have %d CPUs and %s, the node %d CPUs and %s", used.CPUs, used.Memory, n.CPUs, n.Memory)
	}
	if n.CPUOnly.CPUs < 0 || n.CPUOnly.Memory < 0 || n.CPUOnly.CPUs > 0 && n.CPUOnly.Memory < 1 {
		bad("the slot without GPUs has %d CPUs and %s", n.CPUOnly.CPUs, n.CPUOnly.Memory)
	}
	if len(n.Devices) > mostDevices {
		bad("%d GPUs and MIG devices are more than the %d slot types that there are for them", len(n.Devices), mostDevices)
	}
	if n.PerGPU {
		if err := checkPath(n.Execute); err != nil {
			bad("execute: %w", err)
		}
	}
	if err := n.Growth.check(); err != nil {
		bad("%w", err)
	}
	if n.PerGPU && len(n.elastic()) > 0 {
		bad("elastic GPUs are of one startd, and each GPU has its own")
	}
	if err := checkWithoutRequest(n.WithoutRequest); err != nil {
		bad("%w", err)
	}
	for _, p := range []struct{ what, path string }{
		{"inventory", n.Inventory}, {"libexec", n.Libexec}, {"pipe root", n.PipeRoot},
	} {
		if err := checkPath(p.path); err != nil {
			bad("%s: %w", p.what, err)
		}
	}
	return errors.Join(errs...)
}

func (d Device) check() error {
	u, err := gpu.ParseUUID(string(d.UUID))
	switch {
	case err != nil:
		return err
	case u != d.UUID:
		return fmt.Errorf("the UUID is not in NVIDIA's spelling, %s", u)
	case d.UUID.IsMIG() != (d.Profile != ""):
		return fmt.Errorf("its MIG profile is %q", foreign.Clip(d.Profile))
	case d.Share.CPUs < 1 || d.Share.Memory < 1:
		return fmt.Errorf("its slot has %d CPUs and %s; HTCondor starts no job without some", d.Share.CPUs, d.Share.Memory)
	case d.Pool < 1:
		return fmt.Errorf("its pool is %s", d.Pool)
	case d.Elastic && (!d.Shared || d.Memory < 1):
		return fmt.Errorf("it is elastic with %s and not shared: %t", d.Memory, d.Shared)
	case d.Shared && d.Shares < 1:
		return fmt.Errorf("it is shared by %d jobs", d.Shares)
	case d.Shared && (d.LargestRequest < 1 || d.LargestRequest > d.Pool):
		return fmt.Errorf("its largest request is %s of a pool of %s", d.LargestRequest, d.Pool)
	}
	return nil
}

func checkWithoutRequest(s string) error {
	switch s {
	case WithoutRequestWhole, WithoutRequestShare, WithoutRequestRefuse, WithoutRequestHold:
		return nil
	}
	return fmt.Errorf("without_request is %q, not whole, share, refuse or hold", foreign.Clip(s))
}

// checkPath admits what HTCondor takes literally in every knob that gets a path.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \t\n\r\"'\\|$#,;\x00") {
		return fmt.Errorf("path %q is not absolute, or has a character that HTCondor's configuration gives a "+
			"meaning", foreign.Clip(path))
	}
	return nil
}
