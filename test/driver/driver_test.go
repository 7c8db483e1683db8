package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFetch holds the real thing: each branch arrives whole, with its own
// version, and a second fetch gives the same directory.
func TestFetch(t *testing.T) {
	for _, branch := range Branches() {
		t.Run(branch, func(t *testing.T) {
			dir := Dir(t, branch)
			version, err := Version(dir)
			if err != nil || !strings.HasPrefix(version, branch+".") {
				t.Errorf("version %q (%v), want %s.*", version, err, branch)
			}
			for _, f := range []string{Control(dir), Server(dir), filepath.Join(Libraries(dir), "libcuda.so.1")} {
				if _, err := os.Stat(f); err != nil {
					t.Error(err)
				}
			}
			// Every branch knows -h; the text names the program.
			out, err := exec.CommandContext(t.Context(), Control(dir), "-h").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "nvidia-cuda-mps-control") {
				t.Errorf("nvidia-cuda-mps-control -h: %v: %q", err, out)
			}
			if again, err := Fetch(t.Context(), branch); again != dir || err != nil {
				t.Errorf("second fetch: %q, %v; want %q", again, err, dir)
			}
		})
	}
}

func TestFetchRefusesUnknownBranch(t *testing.T) {
	_, err := Fetch(t.Context(), "470")
	if err == nil || !strings.Contains(err.Error(), "there are 535, 550 and 555") {
		t.Errorf("error %v does not name the branches", err)
	}
}

// TestFetchWithoutMirror: the reason is one line that says what to do, and it
// is not tried again at once.
func TestFetchWithoutMirror(t *testing.T) {
	t.Setenv("GPUSLOT_CACHE", t.TempDir())
	t.Setenv("MIRROR", "http://127.0.0.1:9/debian")
	_, first := Fetch(t.Context(), "550")
	if first == nil || strings.Contains(first.Error(), "\n") || !strings.Contains(first.Error(), "does not offer driver 550") {
		t.Fatalf("first error: %v", first)
	}
	_, second := Fetch(t.Context(), "550")
	if second == nil || !strings.Contains(second.Error(), "to try again now") {
		t.Errorf("second error: %v", second)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("GPUSLOT_CACHE"), ".driver-*"))
	if len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
