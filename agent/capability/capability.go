// Package capability finds out what the installed control daemon, driver and kernel can do,
// by trying them. A probe of the control daemon takes some milliseconds and is repeated only
// when another program is in its place. What an answer leaves unknown counts as missing for
// budgets, and is not reported as present or absent.
//
// Start at Prober.Next, which the agent's loop calls; kernel.go looks at cgroups, missing.go
// has the sentences for operators.
package capability

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Set is what the installed control daemon, driver and kernel can do. An answer that is not
// Known claims nothing.
type Set struct {
	// MPS is what a probe of the control program found; Tried says that there
	// was one, Err why there was none.
	MPS   mps.Capabilities
	Tried bool
	Err   error
	// CgroupLimits: the driver holds the VRAM of a cgroup to a limit (R615 on).
	CgroupLimits mps.Answer

	// program is the file that was tried; see identify.
	program fileIdentity
	round   uint64
}

// cgroupLimits is the name of that capability.
const cgroupLimits = "cgroup-limits"

// All are the answers in fixed order; those of the control daemon only if it
// was tried.
func (c Set) All() []mps.Capability {
	var all []mps.Capability
	if c.Tried {
		all = c.MPS.All()
	}
	return append(all, mps.Capability{Name: cgroupLimits, Answer: c.CgroupLimits})
}

// Names are those of what there is; false if the control daemon was not tried.
func (c Set) Names() ([]string, bool) {
	if !c.Tried {
		return nil, false
	}
	names := []string{}
	for _, a := range c.All() {
		if a.Known && a.Has {
			names = append(names, a.Name)
		}
	}
	return names, true
}

// Status are the answers for "gpuslot status".
func (c Set) Status() []api.Capability {
	var out []api.Capability
	for _, a := range c.All() {
		s := api.Capability{Name: a.Name, How: a.How}
		if a.Known {
			s.Has = &a.Has
		}
		out = append(out, s)
	}
	return out
}

// Known are the answers that are known, by name.
func (c Set) Known() map[string]bool {
	known := map[string]bool{}
	for _, a := range c.All() {
		if a.Known {
			known[a.Name] = a.Has
		}
	}
	return known
}

// fileIdentity tells a program from the next one in its place.
type fileIdentity struct {
	device, inode uint64
	size, changed int64
}

// identityOf is that of the file behind a name; zero if there is none.
func identityOf(program string) fileIdentity {
	path, err := exec.LookPath(program)
	if err != nil {
		return fileIdentity{}
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileIdentity{}
	}
	return fileIdentity{st.Dev, st.Ino, st.Size, st.Mtim.Nano()}
}

const (
	// probeTimeout bounds a probe; 20 ms are usual.
	probeTimeout = 10 * time.Second
	// probeAgain is after how many rounds a failed probe is repeated.
	probeAgain = 4
)

// Prober tries the installed programs and asks the driver.
type Prober struct {
	// Probe tries a control program on a device, empty if there is none.
	Probe func(ctx context.Context, program string, device gpu.UUID) (mps.Capabilities, error)
	// MemoryLimits says whether the driver's NVML can limit a cgroup's VRAM, and whether
	// that is known; nil if NVML is not in use.
	MemoryLimits func() (has, known bool)
	// Sys is /sys.
	Sys string
	Log *slog.Logger
}

// Next returns what is known in a round of the agent's loop. It tries the control program in
// the first round, when another file is in its place, and again a few rounds after a failure.
func (p *Prober) Next(ctx context.Context, last Set, program string, inv gpu.Inventory, round uint64) Set {
	next := last
	if now := p.cgroupLimits(); now.Known || !last.CgroupLimits.Known {
		next.CgroupLimits = now // otherwise what was known stays: a job can bring about that nothing can be read
	}
	id := identityOf(program)
	again := last.Err != nil && round-last.round >= probeAgain
	if last.round != 0 && id == last.program && !again {
		return next
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	next.program, next.round = id, round
	next.MPS, next.Err = p.Probe(ctx, program, device(inv))
	next.Tried = next.Err == nil
	if !next.Tried {
		next.MPS = mps.Capabilities{} // a part of a trial claims nothing
	} else {
		p.Log.Info("control daemon probed", "can", next.MPS.String(), "version", next.MPS.Version)
	}
	return next
}

// device is one that a control daemon sees: a GPU in MIG mode has none but its MIG devices.
func device(inv gpu.Inventory) gpu.UUID {
	for _, g := range inv.GPUs {
		switch {
		case !g.MIGEnabled:
			return g.UUID
		case len(g.MIGDevices) > 0:
			return g.MIGDevices[0].UUID
		}
	}
	return ""
}

// cgroupLimits: NVML must have the call, and the kernel a controller below
// which the driver can count (NVIDIA's documentation of R615).
func (p *Prober) cgroupLimits() mps.Answer {
	if p.MemoryLimits == nil {
		return mps.Answer{How: "NVML is not in use"}
	}
	has, known := p.MemoryLimits()
	switch {
	case !known:
		return mps.Answer{How: "NVML does not answer"}
	case !has:
		return mps.Answer{Known: true, How: "this driver's NVML has no nvmlDeviceSetMemoryLimits_v1"}
	}
	return Controllers(os.DirFS(p.Sys))
}
