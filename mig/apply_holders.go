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
	about := slices.DeleteFunc([]string{h.Command, h.Unit, h.Slot}, func(s string) bool { return s == "" })
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

// users are the processes that NVML lists for the whole GPU and its instances.
func (p Proc) users(s gpu.MIGState) []gpu.Holder {
	all := slices.Clone(s.Holders)
	for _, i := range s.Instances {
		all = append(all, i.Holders...)
	}
	return p.name(unique(all))
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

// held are who has device nodes open. Those of instances have the instance's place.
type held struct {
	nodes map[uint64]gpu.Place
	by    []process.Opener
}

// at are those with a node of a place open, and those that may have one.
func (h *held) at(p gpu.Place) (found []gpu.Holder) {
	its := func(device uint64) bool { return h.nodes[device] == p }
	for _, o := range h.by {
		if o.Unclear != "" || slices.ContainsFunc(o.Devices, its) {
			found = append(found, gpu.Holder{PID: o.PID, Command: o.Unclear})
		}
	}
	return found
}

// having have nodes open, without this process: the library itself opens some. It is a look at all processes.
func (p Proc) having(ctx context.Context, nodes map[uint64]gpu.Place) *held {
	return &held{nodes, process.Openers(ctx, p.fs(), func(f process.File) bool { _, is := nodes[f.Device]; return is })}
}

// withNode have the GPU's own node open, idle monitors too. No node has the number of a GPU whose number is not known.
func (p Proc) withNode(ctx context.Context, s gpu.MIGState) []gpu.Holder {
	node := unix.Mkdev(195, uint32(s.Minor)) // NV_MAJOR_DEVICE_NUMBER
	return p.name(p.having(ctx, map[uint64]gpu.Place{node: {}}).at(gpu.Place{}))
}

// against have nodes open of instances that these steps destroy, and of their compute instances: they may be about to
// start. The driver lists nodes by the GPU's minor number, not its index. If that cannot be read, somebody unknown may.
func (p Proc) against(ctx context.Context, s gpu.MIGState, steps ...Step) *held {
	all, err := devices.Proc{Root: p.Root}.Read()
	if err == nil && s.Minor < 0 {
		err = errors.New("the minor number of the GPU is not known")
	}
	nodes := map[uint64]gpu.Place{}
	for _, step := range steps {
		if i, there := s.At(step.Place); there && step.Verb == Destroy {
			for _, node := range all.Below(fmt.Sprintf("gpu%d/gi%d/", s.Minor, i.ID)) {
				nodes[node] = i.Place
			}
		}
	}
	h := &held{}
	if len(nodes) > 0 {
		h = p.having(ctx, nodes)
	}
	if err != nil && !errors.Is(err, devices.ErrNoCapabilities) { // a driver without this interface has none
		h.by = slices.Insert(h.by, 0, process.Opener{Unclear: err.Error()})
	}
	return h
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
		if h.PID > 0 && h.Command == "" {
			named[i].Command = foreign.Word(strings.TrimSpace(p.fs().Comm(h.PID)))
		}
		named[i].Unit = cmp.Or(h.Unit, units[h.PID])
	}
	return named
}

// unique sorts by PID, one entry a process.
func unique(holders []gpu.Holder) []gpu.Holder {
	slices.SortStableFunc(holders, func(a, b gpu.Holder) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(holders, func(a, b gpu.Holder) bool { return a.PID == b.PID && a.Slot == b.Slot })
}
