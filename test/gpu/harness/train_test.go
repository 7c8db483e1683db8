package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTraining: what train.py says where it cannot train, as one line that a
// report can show. That it trains is seen only where torch is.
func TestTraining(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	torch := func(text string) string { // a torch of so few words
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "torch"), 0o755), os.WriteFile(filepath.Join(dir, "torch/__init__.py"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const gpu = "__version__ = '2'\nclass cuda:\n  is_available = lambda: %s\n  get_device_name = lambda n: 'H100'\n  synchronize = lambda: None\n"
	without, with := torch(strings.Replace(gpu, "%s", "False", 1)), strings.Replace(gpu, "%s", "True", 1)
	broken := torch(with + "set_num_threads = manual_seed = lambda n: None\ndef randn(*a, **k):\n  raise RuntimeError('CUDA out of memory')\n")
	tests := map[string]struct {
		path string
		args []string
		want string
		code int
	}{
		"no torch":       {torch("raise ImportError('no torch here')"), nil, "train.py: no torch here\n", 1},
		"no GPU":         {without, nil, "train.py: torch sees no GPU\n", 1},
		"checked":        {torch(with), []string{"--check"}, "2 H100\n", 0},
		"checked, CPU":   {without, []string{"--check", "--device", "cpu"}, "2 cpu\n", 0},
		"out of memory":  {broken, nil, "train.py: CUDA out of memory\n", 1},
		"no step at all": {without, []string{"--steps", "0"}, "steps, batch and width are at least 1\n", 2},
	}
	for name, tt := range tests {
		cmd := exec.CommandContext(t.Context(), python, append([]string{"../train.py"}, tt.args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+tt.path, "PYTHONDONTWRITEBYTECODE=1")
		out, _ := cmd.CombinedOutput()
		if !strings.HasSuffix(string(out), tt.want) || cmd.ProcessState.ExitCode() != tt.code {
			t.Errorf("%s: %d\n%s", name, cmd.ProcessState.ExitCode(), out)
		}
	}
}
