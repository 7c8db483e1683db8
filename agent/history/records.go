package history

import (
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/store"
)

// RecordLog returns the files of the records: at most eleven of 8 MiB, more than a
// hundred thousand jobs.
func RecordLog(p config.Paths) store.Log {
	return store.Log{Dir: filepath.Join(p.State, "records"), Name: "jobs", Size: 8 << 20, Older: 10}
}

// Records returns the records of the jobs that ended at since or later, the oldest
// first. It skips lines that are no record, such as one that a power cut tore.
func Records(p config.Paths, since time.Time) ([]record.Job, error) {
	var all []record.Job
	err := RecordLog(p).Read(func(line []byte) {
		if r, ok := record.Parse(line); ok && !r.End.Before(since) {
			all = append(all, r)
		}
	})
	return all, err
}
