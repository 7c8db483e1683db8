package ending

import (
	"path/filepath"
	"sync"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/store"
)

// Links are symbolic links that supervisors of jobs read: whether they ask before their
// job's program runs, and whether HTCondor is to hold any job of this node.
type Links struct {
	// Directory is the run directory.
	Directory string
	// Holds are the jobs that HTCondor is to hold: see jobs.Table.Holds.
	Holds func() []api.Hold
	// mu is held while Holding writes, so that the last caller writes the last state.
	mu sync.Mutex
}

// Start writes whether supervisors ask: api.StartRequired, api.StartAsked, or empty if nothing
// has to be in force before a job starts. The link outlives the agent: where isolation was
// promised no job starts while the agent is dead.
func (l *Links) Start(word string) error {
	return store.Link(filepath.Join(l.Directory, "condor", "start"), word)
}

// Holding writes whether HTCondor is to hold any job: a job that ends meanwhile asks whether
// it is the one.
func (l *Links) Holding() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	word := ""
	if len(l.Holds()) > 0 {
		word = "some"
	}
	return store.Link(filepath.Join(l.Directory, "condor", "holds"), word)
}
