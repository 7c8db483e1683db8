package report

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// PageName is the page of one machine.
const PageName = "README.md"

// WritePage writes the page of one machine into dir, whose results Write has read:
// each belief with its outcome and the evidence, and what of the simulator a
// measured value replaces. With doubts, the results are not of hardware.
func WritePage(dir, machine string, doubts []string) error {
	outcomes, errTruth := truth.Read(filepath.Join(dir, "truth"), truth.Trials())
	whole, errNode := truth.Read(filepath.Join(dir, "node"), (&node.Node{}).Trials())
	for _, o := range slices.Concat(outcomes, whole) {
		if o.Simulated && len(doubts) == 0 {
			doubts = []string{o.ID + " says that it is simulated"}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", machine)
	if len(doubts) > 0 {
		b.WriteString("**SIMULATED: these are no results of hardware.**\n\n")
		for _, d := range doubts {
			fmt.Fprintf(&b, "- %s\n", d)
		}
		b.WriteByte('\n')
	} else {
		fmt.Fprintf(&b, "Measured on %s. `driver.json` has the driver's files with their sums.\n\n", machine)
	}
	b.WriteString("[Sharing, with plots beside the papers' figures](report.md). The raw words: `truth/`, `node/`, `facts/`.\n\n")
	b.WriteString("## Beliefs about MPS and NVML\n\n")
	beliefs(&b, "truth", outcomes)
	b.WriteString("## gpuslot as a whole\n\n")
	beliefs(&b, "node", whole)
	replaced(&b, outcomes)
	return errors.Join(errTruth, errNode, os.WriteFile(filepath.Join(dir, PageName), []byte(b.String()), 0o644))
}

// beliefs is one row for each claim.
func beliefs(b *strings.Builder, part string, outcomes []truth.Outcome) {
	if len(outcomes) == 0 {
		b.WriteString("Not measured.\n\n")
		return
	}
	b.WriteString("| trial | belief | outcome | evidence |\n|---|---|---|---|\n")
	for _, o := range outcomes {
		file := fmt.Sprintf("[%s](%s/%s.json)", o.ID, part, o.ID)
		if o.NotDone != "" {
			fmt.Fprintf(b, "| %s | %s | not measured | %s |\n", file, cell(o.Title), cell(o.NotDone))
			continue
		}
		for _, f := range o.Findings {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", file, cell(f.Claim), f.Verdict, cell(evidenceOf(f, o)))
		}
		if len(o.Findings) == 0 || o.Err != "" {
			fmt.Fprintf(b, "| %s | %s | recorded | %s |\n", file, cell(o.Title), cell(o.Err))
		}
	}
	b.WriteByte('\n')
}

// evidenceOf are the values that a claim is about.
func evidenceOf(f truth.Finding, o truth.Outcome) string {
	for _, claim := range slices.Concat(claimsOf(truth.Trials(), o.ID), claimsOf((&node.Node{}).Trials(), o.ID)) {
		if claim.Text != f.Claim {
			continue
		}
		var parts []string
		for _, name := range claim.Needs {
			if v, there := o.Values[name]; there {
				parts = append(parts, fmt.Sprintf("%s %v", name, v))
			} else {
				parts = append(parts, name+" not measured")
			}
		}
		return strings.Join(parts, "; ")
	}
	return ""
}

func claimsOf(trials []truth.Trial, id string) []truth.Claim {
	for _, t := range trials {
		if t.ID == id {
			return t.Claims
		}
	}
	return nil
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " / ").Replace(text)
}

// assumption is a behaviour of the simulated node, the trial that measures it, and the
// file to change if the value is another.
type assumption struct{ trial, values, assumed, file string }

var assumptions = []assumption{
	{"T0", "server_ms", "1500 ms until a server serves", "test/gpu/simulated.sh"},
	{"T0", "context_ms", "400 ms for a context", "test/gpu/simulated.sh"},
	{"T2", "default_uuid_mib", "a default limit by UUID binds from 580 on", "test/sim/mps/control/commands.c"},
	{"T2", "default_index_free_mib", "free is what the limit leaves", "test/sim/cuda/memory.c"},
	{"T4", "two_entries_mib bogus_uuid_mib", "an entry for a foreign GPU removes every limit", "test/sim/cuda/limit.c"},
	{"T5", "server_mib before_used_mib clients_5_used_mib clients_5_listed_mib", "NVML lists all memory; a server has 66 MiB on Hopper, else 27", "test/sim/nvml/processes.c"},
	{"T5", "client_300_in_compute client_300_in_mps server_in_compute", "clients stand in both lists, the server in that of compute processes", "test/sim/nvml/processes.c"},
	{"T5", "log_limit_line", "from 580 on the server's log has its limit", "test/sim/mps/server/main.c"},
	{"T6", "context_100_mib context_50_mib context_10_mib multiprocessors_100", "a context takes 30 MiB and 3.7 MiB a multiprocessor on Hopper, else 64 and 2", "test/sim/cuda/context.c"},
	{"T7", "managed_code", "managed memory is limited from 580 on", "test/sim/cuda/memory.c"},
	{"T8", "illegal_address_neighbour_code assert_neighbour_code illegal_address_recovery_ms", "a fault is fatal to all clients, from 580 on but for an assertion", "test/sim/state/mps.c"},
	{"T10", "killed_neighbour_code killed_neighbour_ends", "a busy client's SIGKILL ends its neighbours, with 700 from 580 on", "test/sim/state/mps.c"},
	{"T15", "whole_clients one_percent_clients", "48 clients, 60 from CUDA 13.1 on", "test/sim/mps/server/server.h"},
	{"T17", "server_survives client_code", "a server survives its control daemon before 580", "test/sim/mps/server/main.c"},
}

// replaced lists what was measured of the simulator's assumptions.
func replaced(b *strings.Builder, outcomes []truth.Outcome) {
	b.WriteString("## What the simulated node assumes\n\n")
	b.WriteString("Where a measured value is another one, change the file and the claim in `test/gpu`.\n\n")
	b.WriteString("| trial | the simulator's assumption | measured | file |\n|---|---|---|---|\n")
	for _, a := range assumptions {
		var found []string
		for _, o := range outcomes {
			if o.ID != a.trial {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(o.Values)) {
				if slices.Contains(strings.Fields(a.values), name) {
					found = append(found, fmt.Sprintf("%s %v", name, o.Values[name]))
				}
			}
		}
		text := strings.Join(found, "; ")
		if text == "" {
			text = "not measured"
		}
		fmt.Fprintf(b, "| %s | %s | %s | `%s` |\n", a.trial, a.assumed, cell(text), a.file)
	}
	b.WriteByte('\n')
}
