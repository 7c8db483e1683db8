package measure

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestChosenGPU(t *testing.T) {
	all := []gpu.GPU{{Index: 0, UUID: "GPU-aaaa0000-0000-0000-0000-000000000000"}, {Index: 1, UUID: "GPU-aaaa1111-0000-0000-0000-000000000000"}}
	for text, want := range map[string]int{"0": 0, "1": 1, "GPU-aaaa1": 1, string(all[0].UUID): 0, "GPU-aaaa": -1, "GPU-": -1, "2": -1, "": -1} {
		g, err := chosenGPU(all, text)
		if (err == nil) != (want >= 0) || err == nil && g.Index != want {
			t.Errorf("%q: %v %v", text, g.Index, err)
		}
	}
}

func TestLeftToBench(t *testing.T) {
	shared := []api.StatusGPU{{UUID: "GPU-1", Mode: "mps"}}
	tests := map[string]struct {
		status api.Status
		gpu    gpu.UUID
		left   bool
	}{
		"shared":              {api.Status{GPUs: shared}, "GPU-1", false},
		"observed":            {api.Status{GPUs: []api.StatusGPU{{UUID: "GPU-1", Mode: "observe"}}}, "GPU-1", true},
		"another":             {api.Status{GPUs: shared}, "GPU-2", true},
		"quiesced":            {api.Status{GPUs: shared, Node: &api.NodeStatus{Phase: "quiesced"}}, "GPU-1", true},
		"not quiesced as yet": {api.Status{GPUs: shared, Node: &api.NodeStatus{Phase: "quiescing"}}, "GPU-1", false},
	}
	for name, tt := range tests {
		if err := leftToBench(tt.status, tt.gpu); (err == nil) != tt.left {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutCUDA(t *testing.T) {
	got := withoutCUDA([]string{"A=1", "CUDA_MPS_PIPE_DIRECTORY=/x", "CUDA_VISIBLE_DEVICES=3", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_HOME=/usr"})
	if strings.Join(got, " ") != "A=1 CUDA_HOME=/usr" {
		t.Error(got)
	}
}

// TestNewDirectory: the result goes into a directory that is made for it. In one that is there a user may have put links.
func TestNewDirectory(t *testing.T) {
	at := t.TempDir()
	for _, out := range []string{"new", "deep/er/new", "with-slash/"} {
		out = at + "/" + out
		dir, remove, err := Options{Out: out}.directory()
		if err != nil || dir != filepath.Clean(out) {
			t.Errorf("%s: %q, %v", out, dir, err)
		}
		if st, err := os.Stat(out); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", out, err)
		}
		if _, _, err := (Options{Out: out}).directory(); err == nil || !strings.Contains(err.Error(), "is there already") {
			t.Errorf("%s again: %v", out, err)
		}
		remove(false)
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays without a result: %v", out, err)
		}
	}
	link := filepath.Join(at, "link")
	if err := os.Symlink(filepath.Join(at, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Options{Out: link}).directory(); err == nil {
		t.Error("a link was followed")
	}
}
