package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// view is a Node as the template prints it.
type view struct {
	Title, Host, Version, Driver, Age string
	CSS                               template.CSS
	JS                                template.JS
	Sums                              []sum
	Problems                          []string
	GPUs                              []gpuView
}

type sum struct{ Name, Value string }

type gpuView struct {
	ID, Label, Class                 string
	UUID                             gpu.UUID
	Name, State, Closed, Facts, Mode string
	Devices                          []deviceView
	Plots                            []plot
}

type deviceView struct {
	ID, Title, Method, Count string
	Memory, Activity         bar
	Slots                    []slotView
}

type slotView struct {
	Class, Name, Energy string
	Memory, SM          bar
}

// viewOf is pure.
func viewOf(n Node, h *History, now time.Time) view {
	v := view{
		Title: "gpuslot: " + n.Host, Host: n.Host, Version: n.Version, Driver: n.Driver,
		Age: age(n.At, now), Sums: sums(n), Problems: n.Problems,
	}
	if v.Host == "" {
		v.Title, v.Host = "gpuslot", "unnamed node"
	}
	for i, g := range n.GPUs {
		v.GPUs = append(v.GPUs, viewOfGPU(strconv.Itoa(i), g, h))
	}
	return v
}

// age says how old the data is.
func age(at, now time.Time) string {
	switch old := now.Sub(at).Round(time.Second); {
	case at.IsZero():
		return "The use of the GPUs is not known yet."
	case old > time.Minute:
		return fmt.Sprintf("The use of the GPUs was last read %s ago, at %s.", old, at.Format(time.TimeOnly))
	default:
		return "Read at " + at.Format("2006-01-02 15:04:05 MST") + "."
	}
}

// sums are the node in four numbers.
func sums(n Node) []sum {
	var open, jobs int
	var used, total gpu.Bytes
	var power float64
	powered := false
	for _, g := range n.GPUs {
		jobs += g.jobs()
		if g.Shared && g.Closed == "" {
			open++
		}
		if g.memory().Known {
			used, total = used+g.Used.Value, total+g.Total.Value
		}
		if g.Power.Known {
			power, powered = power+g.Power.Value, true
		}
	}
	shared := 0
	for _, g := range n.GPUs {
		if g.Shared {
			shared++
		}
	}
	out := []sum{{"shared GPUs take jobs", fmt.Sprintf("%d of %d", open, shared)},
		{plural(jobs, "job", "jobs"), fmt.Sprint(jobs)}}
	if len(n.GPUs) > 0 && n.GPUs[0].Mode == observed { // then all of them are
		out[0] = sum{plural(len(n.GPUs), "GPU observed", "GPUs observed"), fmt.Sprint(len(n.GPUs))}
	}
	if total > 0 {
		out = append(out, sum{"of VRAM in use", percent(float64(used) / float64(total))})
	}
	if powered {
		out = append(out, sum{"power", watts(power)})
	}
	return out
}

// observed is the mode of GPUs that gpuslot only looks at, divided that of MIG devices.
const (
	observed = "observe"
	divided  = "mig"
)

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func viewOfGPU(id string, g GPU, h *History) gpuView {
	v := gpuView{ID: id, Label: "GPU", Class: "open", UUID: g.UUID, Name: g.Name, Closed: g.Closed, State: "takes jobs",
		Mode: g.Mode, Facts: facts(g)}
	if g.Index != NotPlanned {
		v.Label += " " + strconv.Itoa(g.Index)
	}
	switch {
	case g.Closed != "":
		v.State, v.Class = "closed", "shut"
	case len(g.MIG) > 0:
		v.State, v.Class = "divided by MIG", ""
	case g.Index == NotPlanned:
		v.State, v.Class = "not offered", ""
	case g.Mode == observed:
		v.State, v.Class = "observed", ""
	case g.Mode == divided && !g.Shared:
		v.State = "a MIG device, takes one job at a time"
	case !g.Shared:
		v.State, v.Class = "given out whole", ""
	}
	for i, d := range g.devices() {
		v.Devices = append(v.Devices, viewOfDevice(fmt.Sprintf("jobs%s-%d", id, i), d, len(g.MIG) > 0))
	}
	memory, activity, power := h.of(g.UUID)
	title := "SM time"
	if !g.Activity.Known && g.KernelTime.Known {
		title = "any kernel"
	}
	v.Plots = []plot{draw("VRAM", memory, 1, percent), draw(title, activity, 1, percent),
		draw("power", power, roof(power), watts)}
	if last := &v.Plots[2]; last.Path != "" {
		last.Now += " of " + last.Top
	}
	return v
}

// facts is a GPU's state in one line.
func facts(g GPU) string {
	var parts []string
	if g.Mode != "" {
		parts = append(parts, "mode "+g.Mode)
	}
	if g.Shared {
		parts = append(parts, fmt.Sprintf("%d of %d shares in use", g.jobs(), g.Shares))
	}
	if g.MPS != "" {
		parts = append(parts, "MPS server "+g.MPS)
	}
	if g.Power.Known {
		parts = append(parts, watts(g.Power.Value))
	}
	return strings.Join(parts, " · ")
}

// methods say how well the division is known.
func methods(name string) string {
	switch name {
	case "exclusive", "mig":
		return "exact: one job"
	case "timeslice":
		return "by the driver's samples of each process"
	case "mps":
		return "divided with bounds"
	}
	return ""
}

func viewOfDevice(id string, d Device, mig bool) deviceView {
	v := deviceView{ID: id, Memory: memoryBar(d), Activity: activityBar(d),
		Count: fmt.Sprintf("%d %s", len(d.Slots), plural(len(d.Slots), "job", "jobs"))}
	if d.Activity.Known && len(d.Slots) > 0 {
		v.Method = methods(d.Method)
	}
	if mig {
		v.Title = string(d.UUID)
	}
	for i, s := range d.Slots {
		energy := "-"
		if s.Joules.Known {
			energy = joules(s.Joules.Value)
		}
		v.Slots = append(v.Slots, slotView{Class: colour(i), Name: s.Name, Memory: budgetBar(i, s), SM: bandBar(i, s),
			Energy: energy})
	}
	return v
}

func joules(j float64) string {
	if j < 1e3 {
		return fmt.Sprintf("%.0f J", j)
	}
	if j < 1e6 {
		return fmt.Sprintf("%.1f kJ", j/1e3)
	}
	return fmt.Sprintf("%.1f MJ", j/1e6)
}
