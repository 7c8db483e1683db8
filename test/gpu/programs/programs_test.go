package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/driver"
)

// kernels are all that gpujob has, by the first GPUs of each generation. Debian
// has no assembler that knows Blackwell.
var (
	kernels       = []string{"load", "compute", "stream", "illegal_address", "misaligned_address", "launch_failed", "assert"}
	architectures = []string{"sm_70", "sm_80", "sm_90"}
)

// TestPrograms compiles them once for all that is looked at.
func TestPrograms(t *testing.T) {
	dir := built(t)
	t.Run("kernels", func(t *testing.T) { kernelsAssemble(t, dir) })
	t.Run("driver", func(t *testing.T) { withoutDriver(t, dir) })
	t.Run("words", func(t *testing.T) { wordsAreRefused(t, dir) })
}

func built(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc here")
	}
	dir := t.TempDir()
	if err := Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// kernelsAssemble: NVIDIA's assembler takes every kernel.
func kernelsAssemble(t *testing.T, dir string) {
	t.Helper()
	ptxas, out := driver.Ptxas(t), t.TempDir()
	for _, name := range kernels {
		text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "gpujob"), "ptx", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(out, name+".ptx")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, arch := range architectures {
			// -c: the assertion calls what only the driver has.
			if out, err := exec.CommandContext(t.Context(), ptxas, "-c", "-arch="+arch, "-o", os.DevNull, file).CombinedOutput(); err != nil {
				t.Errorf("%s for %s: %v\n%s", name, arch, err, out)
			}
		}
	}
}

// TestHeaders holds the programs, which are built without NVIDIA's headers, to
// them: a struct of another size would write over what lies behind it.
func TestHeaders(t *testing.T) {
	t.Run("nvml.h", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
		if err != nil {
			t.Fatal(err)
		}
		agrees(t, "gcc", "-std=gnu11", "-I"+filepath.Join(strings.TrimSpace(string(out)), "gen/nvml"), "testdata/seen.c")
	})
	t.Run("cuda.h", func(t *testing.T) {
		agrees(t, "g++", "-std=c++17", "-Wno-enum-compare", "-isystem", driver.Headers(t), "testdata/agree.cc")
	})
}

func agrees(t *testing.T, compiler string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no %s here", compiler)
	}
	args = append([]string{"-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Isrc"}, args...)
	if out, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// withoutDriver: both programs say what is missing.
func withoutDriver(t *testing.T, dir string) {
	t.Helper()
	for program, want := range map[string]string{"gpujob": `"result":"NOT_LOADED"`, "gpusee": `"error":"libnvidia-ml.so.1"`} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, program), map[string]string{"gpujob": "devices", "gpusee": "GPU-0"}[program])
		out, err := cmd.Output()
		if err == nil {
			t.Skip("there is a driver here")
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("%s says %q", program, out)
		}
	}
}

// wordsAreRefused: a misspelt word is status 2, before anything is done.
func wordsAreRefused(t *testing.T, dir string) {
	t.Helper()
	for _, words := range [][]string{{"bogus"}, {"alloc"}, {"alloc", "x"}, {"ptx", "bogus"}, {"load", "1"}, {"fault", "bogus"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "gpujob"), words...)
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("%q: %v", words, err)
		}
	}
}
