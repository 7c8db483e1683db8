package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// Diff says in sorted sentences what differs between two plans of one node;
// nothing if only warnings do, or Divided. It speaks from old to new.
func Diff(old, new Plan) []string {
	var d differences
	d.node(old, new)
	for _, g := range old.GPUs {
		if _, kept := new.GPU(g.UUID); !kept {
			d.say("%s is no longer offered.", g.UUID)
		}
	}
	for _, g := range new.GPUs {
		before, known := old.GPU(g.UUID)
		if !known {
			d.say("%s (%s) is offered, %s.", g.UUID, g.Name, g.summary())
			continue
		}
		d.gpu(before, g)
	}
	d.divided(old.MIG, new.MIG)
	slices.Sort(d)
	return d
}

type differences []string

func (d *differences) say(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// change says that a value of something differs; nothing if it does not.
func (d *differences) change(subject, what, before, after string) {
	if before != after {
		d.say("%s: %s changes from %s to %s.", subject, what, orNone(before), orNone(after))
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func does(p Plan) string {
	if p.Observe {
		return "observing"
	}
	return "offering GPUs"
}

func (d *differences) node(old, new Plan) {
	d.change("The node", "the schema of the plan", old.Schema, new.Schema)
	d.change("The node", "the host name", old.Host.Name, new.Host.Name)
	d.change("The node", "the number of CPUs", strconv.Itoa(old.Host.CPUs), strconv.Itoa(new.Host.CPUs))
	d.change("The node", "the memory", old.Host.Memory.String(), new.Host.Memory.String())
	d.change("The node", "what gpuslot does there", does(old), does(new))
	d.change("The node", "the driver", old.Driver, new.Driver)
	d.change("The node", "the CUDA version", old.CUDA, new.CUDA)
	d.change("The node", "the part for jobs without GPUs", old.CPUOnly.String(), new.CPUOnly.String())
	d.change("request_vram", "minimum", old.RequestVRAM.Minimum.String(), new.RequestVRAM.Minimum.String())
	d.change("request_vram", "quantum", old.RequestVRAM.Quantum.String(), new.RequestVRAM.Quantum.String())
	d.change(
		"request_vram",
		"without_request",
		string(old.RequestVRAM.WithoutRequest),
		string(new.RequestVRAM.WithoutRequest),
	)
	for _, u := range old.Absent {
		if !slices.Contains(new.Absent, u) {
			d.say("%s is no longer missing.", u)
		}
	}
	for _, u := range new.Absent {
		if !slices.Contains(old.Absent, u) {
			d.say("%s is configured but missing.", u)
		}
	}
}

func (d *differences) gpu(old, new GPU) {
	s := new.UUID.String()
	d.change(s, "the index", strconv.Itoa(old.Index), strconv.Itoa(new.Index))
	d.change(s, "the name", old.Name, new.Name)
	d.change(s, "the PCI bus id", string(old.PCI), string(new.PCI))
	d.change(s, "the device memory", old.Memory.String(), new.Memory.String())
	d.change(s, "the compute capability", old.Capability.String(), new.Capability.String())
	d.change(s, "the mode", string(old.Mode), string(new.Mode))
	d.change(s, "elastic", strconv.FormatBool(old.Elastic), strconv.FormatBool(new.Elastic))
	d.change(s, "the number of shares", strconv.Itoa(old.Shares), strconv.Itoa(new.Shares))
	d.change(s, "the VRAM pool", old.Pool.String(), new.Pool.String())
	d.change(s, "the VRAM in no budget", old.Kept.String(), new.Kept.String())
	d.change(s, "the largest request", old.LargestRequest.String(), new.LargestRequest.String())
	d.change(s, "the default request", old.DefaultRequest.String(), new.DefaultRequest.String())
	d.change(s, "its part of the host", old.Resources.String(), new.Resources.String())
	d.change(s, "threads", old.Threads.String(), new.Threads.String())
	d.change(s, "the compute mode", string(old.ComputeMode), string(new.ComputeMode))
	d.change(s, "the number of clients of a job", strconv.Itoa(old.MaxClients), strconv.Itoa(new.MaxClients))
	d.change(s, "tenancy", old.Tenancy.String(), new.Tenancy.String())
	d.change(s, "the GPU that it is part of", string(old.Parent), string(new.Parent))
	d.change(s, "its place", old.Place, new.Place)
	d.change(s, "the MIG device behind it", string(old.Device), string(new.Device))
	d.change(s, "the number of compute slices", strconv.Itoa(old.Slices), strconv.Itoa(new.Slices))
	d.change(s, "the MIG profile", old.Profile, new.Profile)
	d.change(s, "the number of multiprocessors", strconv.Itoa(old.Multiprocessors), strconv.Itoa(new.Multiprocessors))
	d.change(s, "the reason of its mode", old.Why, new.Why)
}

// divided tells of GPUs that are given out in MIG devices.
func (d *differences) divided(old, new []MIGGPU) {
	before := map[gpu.UUID]MIGGPU{}
	for _, g := range old {
		before[g.UUID] = g
	}
	for _, g := range new {
		o, known := before[g.UUID]
		delete(before, g.UUID)
		if !known {
			d.say("%s (%s) is given out in MIG devices, %s.", g.UUID, g.Name, g.wanted())
			continue
		}
		s := g.UUID.String()
		d.change(s, "the MIG layout", o.wanted(), g.wanted())
		d.change(s, "the places of the MIG layout", strings.Join(o.Placed, " or else "), strings.Join(g.Placed, " or else "))
		d.change(s, "the number of compute slices", strconv.Itoa(o.Slices), strconv.Itoa(g.Slices))
		d.change(s, "repartition", string(o.Repartition), string(g.Repartition))
		d.change(s, "the index", strconv.Itoa(o.Index), strconv.Itoa(g.Index))
		d.change(s, "the name", o.Name, g.Name)
		d.change(s, "the PCI bus id", string(o.PCI), string(g.PCI))
		d.change(s, "the device memory", o.Memory.String(), g.Memory.String())
		d.change(s, "the reason of its mode", o.Why, g.Why)
		d.change(s, "the cost of its layouts", fmt.Sprint(o.Costs), fmt.Sprint(g.Costs))
	}
	for u := range before {
		d.say("%s is no longer given out in MIG devices.", u)
	}
}

// wanted is the layouts in words.
func (g MIGGPU) wanted() string {
	if len(g.Layouts) == 0 {
		return "those that exist"
	}
	return strings.Join(g.Layouts, " or else ")
}

// summary is a GPU in a few words.
func (g GPU) summary() string {
	if !g.Shared() {
		return strings.TrimSpace(string(g.Mode) + " " + g.Profile)
	}
	return fmt.Sprintf("%s in %s of %s", g.Mode, counted(g.Shares, "share", "shares"), g.Pool)
}

func (r Resources) String() string {
	if r == (Resources{}) {
		return ""
	}
	return fmt.Sprintf("%s and %s", counted(r.CPUs, "CPU", "CPUs"), r.Memory)
}

func (t Threads) String() string {
	s := string(t.Policy)
	if p := t.Partition; p != (Partition{}) {
		s += fmt.Sprintf(", %s a share, %d unused", counted(p.SMs, "SM", "SMs"), p.Unused)
	}
	if t.Percent != 0 {
		s = percent(t.Percent)
	}
	if t.Most != 0 {
		s += ", on request up to " + percent(t.Most)
	}
	return s
}

func percent(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) + " %" }

func (t Tenancy) String() string {
	s := string(t.Policy)
	if t.User != "" {
		s += ":" + t.User
	}
	if t.Tenant != "" {
		s += ", by " + string(t.Tenant)
	}
	return s
}
