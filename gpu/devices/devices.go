// Package devices holds jobs to the device nodes of their own MIG devices. A
// GPU instance and a compute instance are each opened through a node of its own
// in /dev/nvidia-caps; who cannot open both cannot compute there. The package
// reads the driver's numbers of them (Read), decides which of them a job may
// open (Capabilities.Rule, pure), and lets the kernel hold a cgroup to it
// (Kernel). It knows nothing of jobs, and leaves every other device alone. Start
// at Rule.
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

	"github.com/gpuslot/gpuslot/gpu"
)

// Errors of Rule and Read.
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

// Rule is which nodes of one major may be opened: those outside of MIG's, and
// the job's own.
type Rule struct {
	Major uint32
	// MIG are the minors that the rule is about, Own those that stay open, sorted
	// and apart.
	MIG Range
	Own []Range
	// NotRoot: the rule is for all accounts except root, by the real uid.
	NotRoot bool
}

// Equal says whether both open the same.
func (r Rule) Equal(o Rule) bool {
	return r.Major == o.Major && r.MIG == o.MIG && r.NotRoot == o.NotRoot && slices.Equal(r.Own, o.Own)
}

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
	for name, minor := range c.Minors {
		if strings.HasPrefix(name, prefix) {
			minors = append(minors, minor)
		}
	}
	if len(minors) == 0 {
		return nil, fmt.Errorf("%s: %w", what, ErrUnknown)
	}
	return minors, nil
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

// Proc is where the driver tells of its nodes.
type Proc struct {
	// Root is /proc where empty.
	Root string
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
	gpus, err := p.gpus()
	return Capabilities{Major: major, Minors: parseMinors(text), GPUs: gpus}, err
}

// gpus are the numbers of the GPUs by which the driver calls them.
func (p Proc) gpus() (map[gpu.UUID]int, error) {
	gpus := map[gpu.UUID]int{}
	files, err := filepath.Glob(p.path("driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the GPU is gone; Rule says so for whom it matters
		}
		if u, minor, ok := parseInformation(text); ok {
			gpus[u] = minor
		}
	}
	return gpus, nil
}

func (p Proc) read(name string) ([]byte, error) {
	text, err := os.ReadFile(p.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoCapabilities, err)
	}
	return text, err
}
