package agent

import (
	"context"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/mps"
)

// Capabilities are what the installed control daemon, driver and kernel can
// do, by trial. An answer that is not Known claims nothing.
type Capabilities struct {
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
func (c Capabilities) All() []mps.Capability {
	var all []mps.Capability
	if c.Tried {
		all = c.MPS.All()
	}
	return append(all, mps.Capability{Name: cgroupLimits, Answer: c.CgroupLimits})
}

// words are the names of what there is; false if the control daemon was not tried.
func (c Capabilities) words() ([]string, bool) {
	if !c.Tried {
		return nil, false
	}
	words := []string{}
	for _, a := range c.All() {
		if a.Known && a.Has {
			words = append(words, a.Name)
		}
	}
	return words, true
}

// forStatus says them in the words of the socket.
func (c Capabilities) forStatus() []api.Capability {
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

// forMetrics are the known ones.
func (c Capabilities) forMetrics() map[string]bool {
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

// capabilities tries the control program, at the start and when another file
// stands in its place.
func (a *Agent) capabilities(ctx context.Context, last Capabilities, program string, round uint64) Capabilities {
	next := last
	next.CgroupLimits = a.cgroupLimits()
	id := identityOf(program)
	again := last.Err != nil && round-last.round >= probeAgain
	if last.round != 0 && id == last.program && !again {
		return next
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	next.program, next.round = id, round
	next.MPS, next.Err = a.probe(ctx, program)
	next.Tried = next.Err == nil
	if next.Tried {
		a.log.Info("control daemon probed", "can", next.MPS.String(), "version", next.MPS.Version)
	}
	return next
}

// cgroupLimits: NVML must have the call, and the kernel a controller below
// which the driver can count (NVIDIA's documentation of R615).
func (a *Agent) cgroupLimits() mps.Answer {
	if a.memoryLimits == nil {
		return mps.Answer{How: "NVML is not in use"}
	}
	has, known := a.memoryLimits()
	switch {
	case !known:
		return mps.Answer{How: "NVML does not answer"}
	case !has:
		return mps.Answer{Known: true, How: "this driver's NVML has no nvmlDeviceSetMemoryLimits_v1"}
	}
	return kernelControllers(os.DirFS(a.sys))
}
