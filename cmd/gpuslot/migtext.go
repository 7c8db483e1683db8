package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/mig"
)

func (r migReport) text(w io.Writer) {
	var layouts show.Table
	layouts.Row("GPU", "MODEL", "NOW", "PLAN", "SMs", "MEMORY/MiB", "BANDWIDTH", "FLEXIBILITY")
	i := 0
	for _, p := range r.Plans {
		for _, g := range p.GPUs {
			layouts.Row(append(append([]string{strconv.Itoa(g.Index), r.models[i], g.Before, g.After}, costCells(g.Cost)...),
				strconv.Itoa(g.Flexibility))...)
			i++
		}
	}
	layouts.Print(w)
	for _, p := range r.Plans {
		planText(w, p)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
		show.Warn(w, r.Notes)
	}
}

// costCells are SMs, memory and memory bandwidth of what the GPU has without MIG.
func costCells(c mig.Cost) []string {
	return []string{
		of(int64(c.Multiprocessors), int64(c.AllMultiprocessors), c.Empty),
		of(int64(c.Memory), int64(c.AllMemory), c.Empty),
		fmt.Sprintf("%d/%d", c.Units, c.AllUnits),
	}
}

// of is "98 of 108" as far as it is known.
func of(n, all int64, none bool) string {
	switch {
	case n == 0 && !none:
		return "-"
	case all == 0:
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d of %d", n, all)
}

func planText(w io.Writer, p mig.Plan) {
	fmt.Fprintln(w)
	var served show.Table
	served.Row("PROFILE", "WANTED", "SERVED", "WHY NOT MORE")
	for _, s := range p.Served {
		served.Row(s.Profile, strconv.Itoa(s.Wanted), strconv.Itoa(s.Served), show.OrDash(s.Why))
	}
	if len(p.Served) > 0 {
		served.Print(w)
		fmt.Fprintln(w)
	}
	index := map[string]int{}
	for _, g := range p.GPUs {
		index[g.GPU.String()] = g.Index
		for _, s := range g.Pinned {
			fmt.Fprintf(w, "GPU %d: keep: %s\n", g.Index, s)
		}
	}
	for _, s := range p.Steps {
		fmt.Fprintf(w, "GPU %d: %s %s@%d\n", index[s.GPU.String()], s.Verb, s.Name, s.Start)
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, "Nothing is to be changed.")
	}
	if !p.Proven {
		fmt.Fprintln(w, "A better plan may exist: the search for so many profiles on so many GPUs was cut short.")
	}
	for _, g := range p.GPUs {
		show.Warn(w, g.Warnings)
	}
}
