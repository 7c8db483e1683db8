package faults

import (
	"bytes"
	"os"
)

// feature is something that the agent is to learn: what depends on it becomes
// strict as soon as the file says the word.
type feature struct{ file, word string }

var (
	// budgetWatch: a job over its budget is told to leave and held.
	budgetWatch = feature{"../../agent/sample.go", "watchedJobs("}
	// cleanEnds: clients are terminated before a job is.
	cleanEnds = feature{"../../agent/server.go", "api.OpEnd"}
	// openVerb: an operator opens a GPU that the hardware's word closed.
	openVerb = feature{"../../cmd/gpuslot/gpu.go", "override"}
	// xidsClose: the hardware's word closes a GPU.
	xidsClose = feature{"../../agent/agent.go", "Troubles"}
)

func (f feature) awaited() bool {
	b, err := os.ReadFile(f.file)
	return err != nil || !bytes.Contains(b, []byte(f.word))
}
