package keepers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Finder finds who has the node of the driver's memory manager open. VRAM stays in use while anybody has its
// owner's file open. After the owner's end NVML lists no process for it (seen with driver 580 on an H200).
type Finder struct {
	starter.Node
	// Memory is that node, /dev/nvidia-uvm where empty. Outside of jobs /dev/nvidia-uvm-tools counts, too: its file can
	// hold one of the former (uvm_tools.c), but how many a profiled program has is not known. Control is
	// /dev/nvidiactl, which every program that uses CUDA has open as well: who keeps that one, too, is listed. Nodes
	// are all nodes of the driver, /dev/nvidia*. GPU is a format for that of a GPU, /dev/nvidia%d.
	Memory, Control, Nodes, GPU string
}

// Holder is a process with the memory manager's node open that NVML lists on no GPU, or with others' files of it.
// Outside of jobs it has any node of the driver open.
type Holder struct {
	process.ID
	// With are the listed processes that share its open files: it is a fork of theirs. Own: no listed process
	// has one of its files. One that called cuInit, and made no context, is such a process, too. Unknown: that cannot
	// be seen (the kernel may have no kcmp).
	With    []process.ID
	Own     bool
	Unknown bool
	// Bare: it does not have the control node open. No program that uses CUDA is in that state.
	Bare bool
	// Many: NVML lists it, and it has more open files of the node than one program opens.
	Many bool
	// Memory: it has a node of the memory manager open. Only looks outside of jobs set this.
	Memory bool
}

// May says whether it may keep memory.
func (h Holder) May() bool { return h.Own || h.Many || h.Unknown }

// mostOwn is more than one program opens, which are two: one for its VRAM and one for its memory (UVM_MM_INITIALIZE
// in NVIDIA's uvm_ioctl.h).
const mostOwn = 4

// Held is what a look at several processes shows.
type Held struct {
	Holders []Holder
	// Err says why there may be others.
	Err error
}

// A look is bounded, because a job may have very many processes with very many open files.
const (
	mostHolding = 4096
	mostHandles = 1 << 16
	fewHandles  = 256
	mostPairs   = 1 << 18
	longestLook = 2 * time.Second // at one process: the turns of all reads are few
)

// Opens looks at which GPUs a process has open or mapped by their device nodes. It is nil where others keep that from
// being known. What the process itself or its owner keeps from being seen counts as open, and so does a GPU whose own
// node is not seen.
func (k Finder) Opens(pid int) func(gpu.UUID) bool {
	minors, err := devices.Proc{Root: k.Root}.Minors()
	nodes := map[gpu.UUID]uint64{}
	for u, minor := range minors {
		node, no := deviceAt(fmt.Sprintf(cmp.Or(k.GPU, "/dev/nvidia%d"), minor))
		if no == nil {
			nodes[u] = node
		}
		err = cmp.Or(err, no)
	}
	all := slices.Collect(maps.Values(nodes))
	fits := func(f process.File) bool { return slices.Contains(all, f.Device) }
	its, no := process.Uses(k.FS, pid, mostHandles, longestLook, fits)
	others := errors.Is(no, process.ErrNotAsked) && !errors.Is(no, process.ErrRefused)
	if others || devices.Lacks(err) || devices.Lacks(no) {
		return nil
	}
	return func(u gpu.UUID) bool {
		node, seen := nodes[u]
		return no != nil || !seen || slices.Contains(its, node)
	}
}

// OfJob begins a look at the processes in a job's cgroups. Listed are those that NVML lists.
func (k Finder) OfJob(s starter.Starter, listed []process.ID) deep.Looking[Held] {
	return deep.Begin(fmt.Sprint("kept by a job ", k.Root, " ", s.PID, " ", s.Started), func() Held {
		pids, err := k.ofJob(s)
		return k.among(pids, listed, err)
	})
}

// ofJob are the processes of a job: those in its cgroups, or where it has none of version 2, all that count for it.
// With an error there may be more.
func (k Finder) ofJob(s starter.Starter) (pids []int, err error) {
	if leaf := k.JobCgroup(s); leaf != "" {
		if slice, ok := starter.JobSlice(leaf); ok {
			leaf = slice
		}
		dir := path.Join(cmp.Or(k.Mount, "/sys/fs/cgroup"), leaf)
		if _, no := starter.CgroupAt(dir); no == nil {
			return deep.Inside(dir)
		}
	}
	all, err := k.PIDs()
	users := starter.Users{Node: k.Node}
	return slices.DeleteFunc(all, func(pid int) bool {
		a, _ := users.AccountOf(pid)
		return !a.Known || !k.RunsBelow(pid, s)
	}), err
}

// OutsideJobs begins a look at what users run outside of all jobs, except for these: what they have is known, or they
// are displays. One without a start is whoever has that PID. No file system is asked, and no list of mappings is
// read, because a process can have both wait without end.
func (k Finder) OutsideJobs(spared []process.ID) deep.Looking[Held] {
	return deep.Begin("kept outside of jobs "+k.Root, func() Held {
		all, err := k.PIDs()
		l := k.outside(err)
		var out Held
		for _, pid := range all {
			if slices.Contains(spared, process.ID{PID: pid}) {
				continue
			}
			users := starter.Users{Node: k.Node}
			if a, err := users.AccountOf(pid); l.missed(err) || !a.Known {
				continue
			}
			_, err := k.Cgroup(pid)
			if hides := errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, process.ErrDeadThreads); !hides && l.missed(err) ||
				!users.OfUser(pid) {
				continue
			}
			s, gone := l.Stat(pid) // last: a job can have the kernel take long over it
			if l.missed(gone) || slices.Contains(spared, s.ID) {
				continue
			}
			if node, memory := l.holds(pid); node && l.Runs(s.ID) {
				out.Holders = append(out.Holders, Holder{ID: s.ID, Memory: memory})
			}
		}
		out.Err = l.err
		return out
	})
}

// outside is a look at processes outside of jobs.
func (k Finder) outside(err error) looking {
	nodes, no := devicesAt(cmp.Or(k.Nodes, "/dev/nvidia*"), "/dev/nvidia-caps/*")
	memory, none := devicesAt(cmp.Or(k.Memory, "/dev/nvidia-uvm*"))
	return looking{Finder: k, nodes: nodes, memory: memory, files: mostHandles, err: errors.Join(err, no, none)}
}

// holds says whether a process has a node of the driver open, and whether it has one of the memory manager.
func (l *looking) holds(pid int) (node, memory bool) {
	its, _ := l.handles(pid, func(f process.File) bool { return slices.Contains(l.nodes, f.Device) })
	for _, h := range its {
		memory = memory || slices.Contains(l.memory, h.Device)
	}
	return len(its) > 0, memory
}

// missed says whether a process is left out, and notes it unless it has ended.
func (l *looking) missed(err error) bool {
	if err != nil && !process.Gone(err) {
		l.failed(err)
	}
	return err != nil
}

// among looks at some processes.
func (k Finder) among(pids []int, listed []process.ID, err error) Held {
	memory, no := deviceAt(cmp.Or(k.Memory, "/dev/nvidia-uvm"))
	if errors.Is(no, unix.ENOENT) {
		return Held{Err: err} // the module is not loaded
	}
	control, none := deviceAt(cmp.Or(k.Control, "/dev/nvidiactl"))
	if no = cmp.Or(no, none); no != nil {
		return Held{Err: no}
	}
	l := looking{Finder: k, memory: []uint64{memory}, control: control, files: mostHandles, pairs: mostPairs,
		theirs: map[process.ID][]process.Handle{}, err: err}
	if len(pids) > mostHolding {
		pids = pids[:mostHolding]
		l.failed(fmt.Errorf("there are more than %d processes", mostHolding))
	}
	for _, p := range listed {
		if its, _ := l.ofDriver(p.PID); k.Runs(p) {
			l.theirs[p] = its
		}
	}
	out := Held{}
	for _, pid := range pids {
		h, its := Holder{}, false
		if i := slices.IndexFunc(listed, func(p process.ID) bool { return p.PID == pid }); i >= 0 {
			h = Holder{ID: listed[i], Many: l.distinct(l.theirs[listed[i]]) > mostOwn}
			its = h.Many
		} else {
			h, its = l.holder(pid)
		}
		if its {
			out.Holders = append(out.Holders, h)
		}
	}
	out.Err = l.err
	return out
}

// looking is a look under way.
type looking struct {
	Finder
	// memory are the nodes of the memory manager, nodes all nodes of the driver.
	memory, nodes []uint64
	control       uint64
	// files and pairs are how many files may be looked at, and how many pairs of them compared.
	files, pairs int
	// theirs are the files of the processes that NVML lists.
	theirs map[process.ID][]process.Handle
	err    error
}

func (l *looking) failed(err error) { l.err = cmp.Or(l.err, err) }

// handles are the descriptors of a process that are wanted.
func (l *looking) handles(pid int, want func(process.File) bool) ([]process.Handle, error) {
	its, looked, err := process.HandlesOf(l.FS, pid, max(l.files, fewHandles), want)
	l.files -= looked
	l.failed(err)
	return its, err
}

// ofDriver are the descriptors of the memory manager's node that a process has; bare says that it has none of the
// control node.
func (l *looking) ofDriver(pid int) (its []process.Handle, bare bool) {
	all, err := l.handles(pid, func(f process.File) bool {
		return slices.Contains(l.memory, f.Device) || f.Device == l.control
	})
	its = slices.DeleteFunc(slices.Clone(all), func(h process.Handle) bool { return !slices.Contains(l.memory, h.Device) })
	return its, len(its) == len(all) && err == nil
}

// holder looks at a process that is not listed.
func (l *looking) holder(pid int) (h Holder, is bool) {
	s, err := l.Stat(pid)
	its, bare := l.ofDriver(pid)
	if err != nil || len(its) == 0 {
		return h, false
	}
	h = Holder{ID: s.ID, Bare: bare}
	for _, one := range its {
		shared := false
		for p, others := range l.theirs {
			with, known := l.shares(one, others)
			shared, h.Unknown = shared || with || !known, h.Unknown || !known
			if with && !slices.Contains(h.With, p) {
				h.With = append(h.With, p)
			}
		}
		h.Own = h.Own || !shared
	}
	return h, l.Runs(h.ID)
}

// distinct is how many open files these are, up to one more than mostOwn. What is not known counts as the same.
func (l *looking) distinct(all []process.Handle) int {
	var found []process.Handle
	for _, one := range all {
		if with, known := l.shares(one, found); known && !with && len(found) <= mostOwn {
			found = append(found, one)
		}
	}
	return len(found)
}

// shares says whether a file is one of these.
func (l *looking) shares(one process.Handle, others []process.Handle) (with, known bool) {
	known = true
	for _, other := range others {
		if l.pairs--; l.pairs < 0 {
			l.failed(errors.New("there are too many open files to compare"))
			return with, false
		}
		same, err := process.SameFile(one, other)
		l.failed(err)
		with, known = with || same, known && err == nil
	}
	return with, known
}

// devicesAt are the numbers of the character devices with such names, none where their directory is not there. An
// error says that there may be others.
func devicesAt(patterns ...string) (found []uint64, err error) {
	for _, pattern := range patterns {
		dir, like := filepath.Split(pattern)
		entries, no := os.ReadDir(dir)
		if no != nil && !errors.Is(no, unix.ENOENT) {
			err = errors.Join(err, no)
		}
		for _, e := range entries {
			if is, _ := filepath.Match(like, e.Name()); !is || e.IsDir() {
				continue
			}
			device, no := deviceAt(dir + e.Name())
			if errors.Is(no, unix.ENOENT) {
				continue
			} else if err = errors.Join(err, no); no == nil {
				found = append(found, device)
			}
		}
	}
	return found, err
}

// deviceAt is the number of the character device at a path.
func deviceAt(name string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, fmt.Errorf("%s is no device", name)
	}
	return st.Rdev, nil
}
