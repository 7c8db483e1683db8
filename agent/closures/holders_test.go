package closures

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestHolders names who keeps the driver's modules.
func TestHolders(t *testing.T) {
	root := t.TempDir()
	fd := filepath.Join(root, "812/fd")
	for dir, link := range map[string]string{fd: "/dev/nvidiactl", filepath.Join(root, "900/fd"): "/dev/null"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link, filepath.Join(dir, "3")); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"comm": "nvidia-persiste\n", "cgroup": "0::/system.slice/nvidia-persistenced.service\n"} {
		if err := os.WriteFile(filepath.Join(root, "812", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := Holders(process.FS{Root: root})
	if len(got) != 1 || got[0] != (api.NodeHolder{PID: 812, Name: "nvidia-persiste", Unit: "nvidia-persistenced.service"}) {
		t.Errorf("%+v", got)
	}
}

// TestForeignWordsOfHolders: what a process calls itself is printed as text of one line.
func TestForeignWordsOfHolders(t *testing.T) {
	proc := proctree.New(t)
	ended := proctree.Thread{TID: 700, State: "Z"}
	runs := proctree.Thread{TID: 701, State: "S", Opened: "/dev/nvidia0"}
	proc.Add(proctree.Process{PID: 700, Parent: 1, Comm: "\x1b[31mroot", State: "Z", Threads: []proctree.Thread{ended, runs}})
	if got := Holders(process.FS{Root: proc.Root}); len(got) != 1 || got[0].Name != "?[31mroot" {
		t.Errorf("a process calls itself %+v", got)
	}
}
