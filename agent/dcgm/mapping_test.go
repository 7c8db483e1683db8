package dcgm

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// The directory holds what the jobs of each GPU need, and no more after them.
func TestJobMapping(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Index: 0}, {UUID: uuid(1), Index: 1}, {UUID: uuid(2), Index: 2}}}
	dir := filepath.Join(t.TempDir(), "dcgm")
	var log bytes.Buffer
	m := Mapping{Log: slog.New(slog.NewTextHandler(&log, nil))}
	contents := func() map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(text)
		}
		return out
	}
	for _, tt := range []struct {
		running []jobs.Job
		want    map[string]string
	}{
		{[]jobs.Job{{GPU: uuid(0), ID: "7.1"}, {GPU: uuid(0), ID: "7.0"}, {GPU: uuid(2), ID: "8.0"}, {GPU: uuid(0), ID: "7.0"}},
			map[string]string{"0": "7.0\n7.1\n", "2": "8.0\n"}},
		{[]jobs.Job{{GPU: uuid(1), ID: "9.0"}, {GPU: uuid(2)}, {GPU: uuid(9), ID: "1.0"}, {GPU: uuid(0), ID: "1\n2"}}, map[string]string{"1": "9.0\n", "README": "ours"}},
		{nil, map[string]string{"README": "ours"}},
	} {
		if m.Update(dir, p, tt.running); log.Len() > 0 {
			t.Fatal(log.String())
		}
		if d := cmp.Diff(tt.want, contents()); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if err := os.WriteFile(filepath.Join(dir, "README"), []byte("ours"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMappingIsLoggedOnce: an error that stays is one line in the log, until it is another one.
func TestMappingIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := Mapping{Log: slog.New(slog.NewTextHandler(&log, nil))}
	where := t.TempDir()
	file, other := filepath.Join(where, "file"), filepath.Join(where, "other")
	for _, name := range []string{file, other} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		dir   string
		lines int
	}{{file, 1}, {file, 1}, {other, 2}, {"", 2}, {file, 3}} {
		m.Update(c.dir, &plan.Plan{}, nil)
		if got := strings.Count(log.String(), "dcgm-exporter is not told"); got != c.lines {
			t.Errorf("step %d: %d lines, want %d:\n%s", i, got, c.lines, log.String())
		}
	}
}

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n)) }
