package dcgm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
)

// Mapping keeps the files that dcgm-exporter reads with --hpc-job-mapping-dir. It is for one
// goroutine.
type Mapping struct {
	Log *slog.Logger
	// logged is the last error, so that it is logged once.
	logged string
}

// Update writes which jobs are on which GPU now. A directory without a name is none.
func (m *Mapping) Update(dir string, p *plan.Plan, running []jobs.Job) {
	failed := ""
	if dir != "" {
		if err := write(dir, jobsByIndex(p, running)); err != nil {
			failed = err.Error()
		}
	}
	if failed != "" && failed != m.logged {
		m.Log.Error("dcgm-exporter is not told of jobs", "err", failed)
	}
	m.logged = failed
}

// jobsByIndex are the ids of each GPU's jobs, by the GPU's NVML index.
func jobsByIndex(p *plan.Plan, running []jobs.Job) map[int][]string {
	jobs := map[int][]string{}
	for _, r := range running {
		g, ok := p.Find(r.GPU)
		if ok && r.ID != "" && !strings.ContainsAny(r.ID, "\r\n") {
			jobs[g.Index] = append(jobs[g.Index], r.ID)
		}
	}
	return jobs
}

// write writes one file for each GPU with jobs, named after its NVML index, with one job id a line.
// Files that are not named like a GPU stay.
func write(dir string, jobs map[int][]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	there, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range there {
		index, errName := strconv.Atoi(e.Name())
		if errName == nil && (len(jobs[index]) == 0 || strconv.Itoa(index) != e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	for index, all := range jobs {
		text := strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), "\n") + "\n"
		_, err := store.WriteIfChanged(filepath.Join(dir, strconv.Itoa(index)), []byte(text))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	return nil
}
