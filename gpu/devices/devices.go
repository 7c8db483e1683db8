// Package devices holds jobs to the device nodes of their own MIG devices. A
// GPU instance and a compute instance are each opened through a node of its own
// in /dev/nvidia-caps; who cannot open both cannot compute there. The package
// reads the driver's numbers of them (Read), decides which of them a job may
// open (Capabilities.Rule, pure), and lets the kernel hold a cgroup to it
// (Kernel). A rule can close the nodes of whole GPUs (Nodes) and those for graphics
// (Graphics), too. It knows nothing of jobs, and leaves every other device alone. Start at Rule.
package devices

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
)

// Errors of Rule, Read, Nodes and Graphics.
var (
	// ErrNoCapabilities: the driver is not loaded, or makes no such nodes.
	ErrNoCapabilities = errors.New("the driver has no MIG capabilities in /proc")
	// ErrUnknown: the driver does not tell of a GPU or an instance.
	ErrUnknown = errors.New("the driver does not list it in /proc")
)

// Range are consecutive minor numbers, both ends included.
type Range struct{ First, Last uint32 }

// Instance is a GPU instance of a GPU, by the driver's ids, or all of them.
type Instance struct {
	GPU gpu.UUID
	ID  int
	// All: every instance of the GPU.
	All bool
}

// Capabilities are the driver's numbers of the nodes in /dev/nvidia-caps.
type Capabilities struct {
	// Major is that of all of them.
	Major uint32
	// Minors are MIG's ("gpu0/gi1/ci0/access"; "config" and "monitor", too). The
	// major has others, which are not MIG's: fabric management.
	Minors map[string]uint32
	// GPUs are the numbers by which those names call a GPU: its /dev/nvidiaN.
	GPUs map[gpu.UUID]int
}

// Node is a device node of a GPU: /dev/nvidiaN, or one for graphics, /dev/dri/renderDN.
type Node struct{ Major, Minor uint32 }

// frontend is the major of /dev/nvidiaN (NV_MAJOR_DEVICE_NUMBER in nv.h of open-gpu-kernel-modules).
const frontend = 195

// Rule is which device nodes may not be opened: those of MIG but for the job's
// own, and further ones. Without MIG's Major it is about the further ones alone.
type Rule struct {
	Major uint32
	// MIG are the minors that the rule is about, Own those that stay open, sorted
	// and apart.
	MIG Range
	Own []Range
	// Closed are the further nodes, sorted.
	Closed []Node
	// Spared are the accounts that the rule is not for, by the real uid.
	Spared []uint32
}

// Equal says whether both open the same.
func (r Rule) Equal(o Rule) bool {
	return r.Major == o.Major && r.MIG == o.MIG && slices.Equal(r.Own, o.Own) &&
		slices.Equal(r.Closed, o.Closed) && slices.Equal(r.Spared, o.Spared)
}

// Empty says that it closes nothing.
func (r Rule) Empty() bool { return r.Major == 0 && len(r.Closed) == 0 }

// Rule is that of a job with these instances; without any, all of MIG's nodes
// are closed. An instance comes with all its compute instances: gpuslot makes
// one in each. Errors match ErrNoCapabilities and ErrUnknown.
func (c Capabilities) Rule(own []Instance) (Rule, error) {
	if len(c.Minors) == 0 {
		return Rule{}, ErrNoCapabilities
	}
	var all, mine []uint32
	for _, minor := range c.Minors {
		all = append(all, minor)
	}
	for _, i := range own {
		minors, err := c.of(i)
		if err != nil {
			return Rule{}, err
		}
		mine = append(mine, minors...)
	}
	return Rule{Major: c.Major, MIG: Range{slices.Min(all), slices.Max(all)}, Own: ranges(mine)}, nil
}

// of are the minors of an instance.
func (c Capabilities) of(i Instance) ([]uint32, error) {
	n, ok := c.GPUs[i.GPU]
	if !ok {
		return nil, fmt.Errorf("GPU %s: %w", i.GPU, ErrUnknown)
	}
	prefix, what := fmt.Sprintf("gpu%d/gi%d/", n, i.ID), fmt.Sprintf("GPU instance %d of %s", i.ID, i.GPU)
	if i.All {
		prefix, what = fmt.Sprintf("gpu%d/", n), fmt.Sprintf("instances of %s", i.GPU)
	}
	var minors []uint32
	for _, device := range c.Below(prefix) {
		minors = append(minors, unix.Minor(device))
	}
	if len(minors) == 0 {
		return nil, fmt.Errorf("%s: %w", what, ErrUnknown)
	}
	return minors, nil
}

// Below are the device numbers of nodes whose names begin so: "gpu0/gi1/" are a GPU instance and its compute instances.
func (c Capabilities) Below(prefix string) (all []uint64) {
	for name, minor := range c.Minors {
		if strings.HasPrefix(name, prefix) {
			all = append(all, unix.Mkdev(c.Major, minor))
		}
	}
	return all
}

// ranges are numbers as few ranges; the driver numbers an instance's nodes in
// one row.
func ranges(minors []uint32) []Range {
	slices.Sort(minors)
	var out []Range
	for _, m := range minors {
		if n := len(out); n > 0 && m-out[n-1].Last <= 1 {
			out[n-1].Last = m
			continue
		}
		out = append(out, Range{m, m})
	}
	return out
}

// Proc is where the driver and the kernel tell of nodes.
type Proc struct {
	// Root is /proc where empty, Sys /sys.
	Root, Sys string
}

func (p Proc) path(name string) string { return filepath.Join(cmp.Or(p.Root, "/proc"), name) }

// Read reads the numbers. Errors match ErrNoCapabilities where there are none. Other errors show nothing of
// the driver: there is no file descriptor left, for example.
func (p Proc) Read() (Capabilities, error) {
	text, err := p.read("devices")
	if err != nil {
		return Capabilities{}, err
	}
	major, ok := parseMajor(text)
	if !ok {
		return Capabilities{}, fmt.Errorf("%s has no nvidia-caps: %w", p.path("devices"), ErrNoCapabilities)
	}
	if text, err = p.read("driver/nvidia-caps/mig-minors"); err != nil {
		return Capabilities{}, err
	}
	gpus, err := p.Minors()
	return Capabilities{Major: major, Minors: parseMinors(text), GPUs: gpus}, err
}

// Minors are the numbers in the names of the device nodes of all GPUs that the driver lists, /dev/nvidiaN.
func (p Proc) Minors() (map[gpu.UUID]int, error) {
	listed, err := p.gpus()
	minors := map[gpu.UUID]int{}
	for u, its := range listed {
		minors[u] = its.minor
	}
	return minors, err
}

// Nodes are those of undivided GPUs. Errors match ErrUnknown where the driver does not list a GPU; the nodes of the
// others come with it. Other errors show nothing of the driver.
func (p Proc) Nodes(gpus []gpu.UUID) ([]Node, error) {
	listed, err := p.gpus()
	if err != nil {
		return nil, err
	}
	var nodes []Node
	var errs []error
	for _, u := range gpus {
		its, ok := listed[u]
		if !ok {
			errs = append(errs, fmt.Errorf("GPU %s: %w", u, ErrUnknown))
			continue
		}
		nodes = append(nodes, Node{frontend, uint32(its.minor)})
	}
	return sorted(nodes), errors.Join(errs...)
}

// Graphics are the nodes for graphics of GPUs that the driver lists, /dev/dri/renderDN and /dev/dri/cardN; none
// where nvidia_drm is not loaded. By the driver's source they give VRAM, too, which NVML lists for no process.
func (p Proc) Graphics(gpus []gpu.UUID) ([]Node, error) {
	listed, err := p.gpus()
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, u := range gpus {
		its, ok := listed[u]
		if !ok {
			continue // Nodes says so
		}
		dir := filepath.Join(cmp.Or(p.Sys, "/sys"), "bus/pci/devices", its.bus, "drm")
		found, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, one := range found {
			text, err := os.ReadFile(filepath.Join(dir, one.Name(), "dev"))
			if Lacks(err) {
				return nil, err
			}
			if node, ok := parseNode(text); ok { // otherwise it is gone
				nodes = append(nodes, node)
			}
		}
	}
	return sorted(nodes), nil
}

// Of are the device numbers of a GPU and of all its instances. With an error they are not known.
func (p Proc) Of(u gpu.UUID) ([]uint64, error) {
	own, err := p.Nodes([]gpu.UUID{u})
	if err != nil {
		return nil, err
	}
	all, err := p.Read()
	if err != nil && !errors.Is(err, ErrNoCapabilities) {
		return nil, err
	}
	return append(all.Below(fmt.Sprintf("gpu%d/", own[0].Minor)), unix.Mkdev(own[0].Major, own[0].Minor)), nil
}

func sorted(nodes []Node) []Node {
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return nodes
}

// listing is a GPU as the driver lists it: the number in the name of its node, and its place on the PCI bus.
type listing struct {
	minor int
	bus   string
}

// gpus are those that the driver lists; none where it is not loaded.
func (p Proc) gpus() (map[gpu.UUID]listing, error) {
	gpus := map[gpu.UUID]listing{}
	dirs, err := os.ReadDir(p.path("driver/nvidia/gpus"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range dirs {
		text, err := os.ReadFile(p.path(filepath.Join("driver/nvidia/gpus", dir.Name(), "information")))
		if Lacks(err) {
			return nil, err
		}
		// Otherwise the GPU is gone; Rule and Nodes say so for whom it matters.
		if u, minor, ok := parseInformation(text); ok {
			gpus[u] = listing{minor, dir.Name()}
		}
	}
	return gpus, nil
}

// Lacks says whether an error is a lack of file descriptors or of memory, which shows nothing of the driver or the
// kernel: a job can bring it about.
func Lacks(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN},
		func(what unix.Errno) bool { return errors.Is(err, what) })
}

func (p Proc) read(name string) ([]byte, error) {
	text, err := os.ReadFile(p.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoCapabilities, err)
	}
	return text, err
}
