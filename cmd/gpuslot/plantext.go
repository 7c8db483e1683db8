package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func (r report) text(w io.Writer) {
	p := r.Plan
	fmt.Fprintln(w, describeHost(p.Host, p.Driver, p.CUDA))
	for _, s := range modelsOf(p) {
		fmt.Fprintln(w, s)
	}
	fmt.Fprintln(w)
	if p.Observe {
		observedText(w, p)
	} else {
		r.offerText(w)
	}
	if len(p.Warnings)+len(r.Unreadable)+len(r.Differences)+len(r.NotInForce) > 0 {
		fmt.Fprintln(w)
	}
	show.Warn(w, p.Warnings)
	show.Warn(w, r.Unreadable)
	for _, s := range r.Differences {
		fmt.Fprintf(w, "differs: %s\n", s)
	}
	if r.NotInForce != "" {
		fmt.Fprintln(w, r.NotInForce)
	}
	r.changesText(w)
}

// offerText is what jobs would get.
func (r report) offerText(w io.Writer) {
	p := r.Plan
	planTable(p).Print(w)
	migText(w, p)
	fmt.Fprintf(w, "\nrequest_vram: at least %s, in steps of %s. A GPU job without it %s.\n", p.RequestVRAM.Minimum,
		p.RequestVRAM.Quantum, withoutRequest(p.RequestVRAM.WithoutRequest))
	for _, s := range append(poolsOf(p), p.UnheldThreads()...) {
		fmt.Fprintln(w, s)
	}
	r.capacityText(w)
}

// poolsOf says how each size of pool comes about, in the order of its first GPU.
func poolsOf(p plan.Plan) []string {
	var out []string
	for _, g := range p.GPUs {
		if !g.Shared() {
			continue
		}
		k, driver := g.Kept, "driver"
		if k.Assumed {
			driver = "driver, assumed"
		}
		server := ""
		if g.MPS() {
			server = fmt.Sprintf(" - %d (MPS server)", int64(k.Server))
		}
		s := fmt.Sprintf("A pool of %s is %d - %d (%s)%s - %d (reserved_vram), in whole steps.",
			g.Pool, int64(g.Memory), int64(k.Driver), driver, server, int64(k.Margin))
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// observedText lists what is looked at.
func observedText(w io.Writer, p plan.Plan) {
	var t show.Table
	t.Row("GPU", "UUID", "MODE", "VRAM/MiB")
	for _, g := range p.GPUs {
		t.Row(strconv.Itoa(g.Index), g.UUID.String(), strings.TrimSpace(string(g.Mode)+" "+g.Profile), show.MiB(g.Memory))
	}
	t.Print(w)
	fmt.Fprintln(w, "\ngpuslot changes nothing on this node: GPUs, HTCondor and jobs stay as they are. "+
		"It records what each job uses (gpuslot usage).")
}

// modelsOf counts the GPUs by model, in the order of their first one.
func modelsOf(p plan.Plan) []string {
	count := map[string]int{}
	var order []string
	for _, g := range p.GPUs {
		if g.Place != "" && g.Device == "" {
			continue // not there now
		}
		s := fmt.Sprintf("%s, %s, compute capability %s", g.Model(), g.Memory, g.Capability)
		if count[s]++; count[s] == 1 {
			order = append(order, s)
		}
	}
	for i, s := range order {
		order[i] = fmt.Sprintf("%d x %s", count[s], s)
	}
	return order
}

func planTable(p plan.Plan) *show.Table {
	t := &show.Table{}
	t.Row("GPU", "UUID", "MODE", "SHARES", "POOL/MiB", "LARGEST", "DEFAULT", "CPUs", "MEMORY/MiB", "THREADS",
		"COMPUTE MODE", "TENANCY")
	for _, g := range p.GPUs {
		policy := []string{"-", "-", "-"}
		if g.Shared() {
			policy = []string{g.Threads.String(), show.OrDash(string(g.ComputeMode)), g.Tenancy.String()}
		}
		t.Row(append([]string{strconv.Itoa(g.Index), g.UUID.String(),
			strings.TrimSpace(modeText(g) + " " + cmp.Or(g.Place, g.Profile)), strconv.Itoa(g.Shares), show.MiB(g.Pool),
			show.MiB(g.LargestRequest), show.MiB(g.DefaultRequest),
			strconv.Itoa(g.Resources.CPUs), show.MiB(g.Resources.Memory)}, policy...)...)
	}
	if p.CPUOnly.CPUs > 0 {
		t.Row("none", "for jobs without GPUs", "-", "-", "-", "-", "-", strconv.Itoa(p.CPUOnly.CPUs),
			show.MiB(p.CPUOnly.Memory), "-", "-", "-")
	}
	return t
}

// modeText is the mode as configured: an elastic GPU has either by turns.
func modeText(g plan.GPU) string {
	if g.Elastic {
		return string(config.ModeElastic)
	}
	return string(g.Mode)
}

// migText says which GPUs are divided, what their layouts cost, and why the plan
// chose the modes that were left to it.
func migText(w io.Writer, p plan.Plan) {
	if len(p.MIG) > 0 {
		fmt.Fprintln(w)
		var t show.Table
		t.Row("GPU", "UUID", "MIG LAYOUT", "SMs", "VRAM/MiB", "BANDWIDTH")
		for _, g := range p.MIG {
			for _, row := range migRows(g) {
				t.Row(row...)
			}
		}
		t.Print(w)
	}
	for _, g := range p.MIG {
		if g.Why != "" {
			fmt.Fprintf(w, "GPU %d is divided: %s.\n", g.Index, g.Why)
		}
	}
	for _, g := range p.GPUs {
		if g.Why != "" && !g.MIGDevice() {
			fmt.Fprintf(w, "GPU %d is %s: %s.\n", g.Index, g.Mode, g.Why)
		}
	}
}

// migRows are the layouts of one GPU, the wanted one first.
func migRows(g plan.MIGGPU) [][]string {
	if len(g.Costs) == 0 {
		return [][]string{{strconv.Itoa(g.Index), g.UUID.String(), show.OrDash(strings.Join(g.Layouts, " or else ")),
			"-", "-", "-"}}
	}
	var rows [][]string
	for i, c := range g.Costs {
		name := c.Layout
		switch {
		case len(g.Layouts) == 0:
			name += " (as it is)"
		case i > 0:
			name = "or else " + name
		}
		rows = append(rows, []string{strconv.Itoa(g.Index), g.UUID.String(), name,
			partOf(c.Cost.Multiprocessors, c.Cost.AllMultiprocessors), partOf(int(c.Cost.Memory), int(c.Cost.AllMemory)),
			partOf(c.Cost.Units, c.Cost.AllUnits)})
	}
	return rows
}

// partOf is "98/108"; a part that is not known is a dash.
func partOf(part, all int) string {
	if part == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", part, all)
}

func withoutRequest(w config.WithoutRequest) string {
	switch w {
	case config.WithoutRequestWhole:
		return "gets a whole GPU"
	case config.WithoutRequestShare:
		return "gets one share"
	case config.WithoutRequestHold:
		return "is held with the line to add"
	}
	return "does not match shared GPUs"
}

func (r report) capacityText(w io.Writer) {
	if len(r.Capacity) == 0 {
		fmt.Fprintln(w, "No GPU is shared.")
		return
	}
	budget := r.Plan.RequestVRAM.Budget(r.Job.VRAM)
	fmt.Fprintf(w, "\nJobs with request_cpus = %d, request_memory = %d, "+
		"request_vram = %d (a budget of %s) that run at once:\n\n",
		r.Job.CPUs, int64(r.Job.Memory), int64(r.Job.VRAM), budget)
	var t show.Table
	t.Row("GPU", "BY CPUs", "BY MEMORY", "BY VRAM", "BY SHARES", "JOBS", "RUNS OUT FIRST")
	for _, c := range r.Capacity {
		g, _ := r.Plan.GPU(c.GPU)
		name := strconv.Itoa(g.Index)
		if g.MIGDevice() {
			name += " " + g.Profile
		}
		t.Row(capacityRow(name, c)...)
	}
	t.Row(capacityRow("all", r.CapacityOfAll)...)
	t.Print(w)
}

func capacityRow(name string, c plan.Capacity) []string {
	return []string{name, strconv.Itoa(c.CPUs), strconv.Itoa(c.Memory), strconv.Itoa(c.VRAM), strconv.Itoa(c.Shares),
		strconv.Itoa(c.Jobs), strings.Join(c.RunsOut, ", ")}
}

// changesText says what HTCondor has to do for the plan, and what waits.
func (r report) changesText(w io.Writer) {
	switch {
	case r.HTCondor == nil && r.HTCondorUnknown == "":
		return
	case r.HTCondorUnknown != "":
		fmt.Fprintf(w, "\nWhat HTCondor runs is not known: %s\n", r.HTCondorUnknown)
		return
	case len(*r.HTCondor) == 0:
		fmt.Fprintln(w, "\nHTCondor's slots are as planned.")
		return
	}
	if len(r.Differences) > 0 {
		fmt.Fprintln(w, "\nWith systemctl reload gpuslotd control daemons, limits and admission change at once; HTCondor:")
	} else {
		fmt.Fprintln(w, "\nThe plan is in force; HTCondor:")
	}
	for _, c := range *r.HTCondor {
		fmt.Fprintf(w, "  %s\n", c.Says)
	}
}
