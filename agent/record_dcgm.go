package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
)

// jobFiles are the files that dcgm-exporter reads with --hpc-job-mapping-dir:
// each GPU's jobs, one a line, under the GPU's NVML index. A GPU without jobs
// has no file.
func jobFiles(p *plan.Plan, running []Running) map[string]string {
	jobs := map[string][]string{}
	for _, r := range running {
		g, ok := find(p, r.GPU)
		if ok && r.Job != "" && !strings.ContainsAny(r.Job, "\r\n") {
			name := strconv.Itoa(g.Index)
			jobs[name] = append(jobs[name], r.Job)
		}
	}
	out := make(map[string]string, len(jobs))
	for name, all := range jobs {
		slices.Sort(all)
		out[name] = strings.Join(slices.Compact(all), "\n") + "\n"
	}
	return out
}

// writeJobFiles makes a directory hold exactly these files; what is not named
// like a GPU is somebody else's.
func writeJobFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	there, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range there {
		_, errName := strconv.Atoi(e.Name())
		if _, wanted := files[e.Name()]; !wanted && errName == nil {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	for name, text := range files {
		_, err := store.WriteIfChanged(filepath.Join(dir, name), []byte(text))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	return nil
}

// mapJobs tells the site's dcgm-exporter which jobs are on which GPU, if it
// wants that. It returns what went wrong, to be told once.
func (a *Agent) mapJobs(told string) string {
	v := a.view.Load()
	if v.config.Usage.DCGMJobMapping == "" || !v.planned {
		return ""
	}
	err := writeJobFiles(v.config.Usage.DCGMJobMapping, jobFiles(&v.plan, a.books.all()))
	if err == nil {
		return ""
	}
	if err.Error() != told {
		a.log.Error("dcgm-exporter is not told of jobs", "err", err)
	}
	return err.Error()
}
