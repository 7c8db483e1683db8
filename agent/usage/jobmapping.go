package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/store"
)

// WriteJobMapping writes the files that dcgm-exporter reads with
// --hpc-job-mapping-dir: the ids of each GPU's jobs, one a line, under the GPU's NVML
// index. A GPU without jobs has no file. Files that are not named like a GPU stay.
func WriteJobMapping(dir string, jobs map[int][]string) error {
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
