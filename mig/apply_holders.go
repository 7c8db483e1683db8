package mig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Proc names processes and finds who holds an instance's device nodes.
type Proc struct {
	// Root is /proc where empty.
	Root string
}

func (p Proc) fs() process.FS { return process.FS{Root: p.Root} }

// describeHolders lists holders for people: "pid 812 (python3, condor.service)".
func describeHolders(holders []gpu.Holder) string {
	words := make([]string, len(holders))
	for i, h := range holders {
		words[i] = describeHolder(h)
	}
	return strings.Join(words, ", ")
}

func describeHolder(h gpu.Holder) string {
	var about []string
	for _, s := range []string{h.Command, h.Unit, h.Slot} {
		if s != "" {
			about = append(about, s)
		}
	}
	who := "a process that NVML cannot name"
	if h.PID > 0 {
		who = fmt.Sprintf("pid %d", h.PID)
	} else if h.Slot != "" {
		who = "a slot"
	}
	if len(about) == 0 {
		return who
	}
	return who + " (" + strings.Join(about, ", ") + ")"
}

// holdersOf are all users of an instance but this process: those that NVML
// lists, and those with its device nodes open, which may be about to start.
func (p Proc) holdersOf(ctx context.Context, s gpu.MIGState, i gpu.Instance) []gpu.Holder {
	nodes, unclear := p.nodes(s.Minor, i.ID)
	having := append(unclear, p.having(ctx, func(f process.File) bool { return nodes[f.Device] })...)
	return p.name(unique(slices.Concat(i.Holders, having)))
}

// users are the processes that NVML lists for the whole GPU and its instances.
func (p Proc) users(s gpu.MIGState) []gpu.Holder {
	all := slices.Clone(s.Holders)
	for _, i := range s.Instances {
		all = append(all, i.Holders...)
	}
	return p.name(unique(all))
}

// openers have the GPU's own node open, idle monitors too.
func (p Proc) openers(ctx context.Context, s gpu.MIGState) []gpu.Holder {
	if s.Minor < 0 {
		return nil
	}
	node := unix.Mkdev(195, uint32(s.Minor)) // NV_MAJOR_DEVICE_NUMBER
	return p.name(p.having(ctx, func(f process.File) bool { return f.Device == node }))
}

// named fills in names everywhere.
func (p Proc) named(s gpu.MIGState) gpu.MIGState {
	s.Holders = p.name(s.Holders)
	s.Instances = slices.Clone(s.Instances)
	for i := range s.Instances {
		s.Instances[i].Holders = p.name(s.Instances[i].Holders)
	}
	return s
}

// nodes are the device numbers of a GPU instance and its compute instances. The
// driver lists them by the GPU's minor number, not its index: gpu0/gi1/ci0/access 12. If that
// cannot be read, somebody unknown may hold one.
func (p Proc) nodes(minor, gi int) (found map[uint64]bool, unclear []gpu.Holder) {
	found = map[uint64]bool{}
	all, err := devices.Proc{Root: p.Root}.Read()
	if err != nil && !errors.Is(err, devices.ErrNoCapabilities) { // a driver without this interface has none
		unclear = []gpu.Holder{{Command: err.Error()}}
	}
	for name, number := range all.Minors {
		if strings.HasPrefix(name, fmt.Sprintf("gpu%d/gi%d/", minor, gi)) {
			found[unix.Mkdev(all.Major, number)] = true
		}
	}
	return found, unclear
}

// having are the processes with such an open file, without this one: the library itself opens
// nodes. What cannot be read may be a holder.
func (p Proc) having(ctx context.Context, is func(process.File) bool) (found []gpu.Holder) {
	for _, o := range process.Openers(ctx, p.fs(), is) {
		h := gpu.Holder{PID: o.PID, Command: o.Unclear}
		if h.Command != "" && h.PID > 0 {
			h.Command = foreign.Word(strings.TrimSpace(p.fs().Comm(h.PID))) + " " + h.Command
		}
		found = append(found, h)
	}
	return found
}

// name fills in command and unit of those that still run.
func (p Proc) name(holders []gpu.Holder) []gpu.Holder {
	named := slices.Clone(holders)
	var pids []int
	for _, h := range holders {
		if h.PID > 0 && h.Unit == "" {
			pids = append(pids, h.PID)
		}
	}
	units := p.fs().Units(pids, process.UnitsWithin)
	for i, h := range named {
		if h.PID <= 0 {
			continue
		}
		if h.Command == "" {
			named[i].Command = foreign.Word(strings.TrimSpace(p.fs().Comm(h.PID)))
		}
		if h.Unit == "" {
			named[i].Unit = units[h.PID]
		}
	}
	return named
}

// unique sorts by PID, one entry a process.
func unique(holders []gpu.Holder) []gpu.Holder {
	slices.SortStableFunc(holders, func(a, b gpu.Holder) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(holders, func(a, b gpu.Holder) bool { return a.PID == b.PID && a.Slot == b.Slot })
}
