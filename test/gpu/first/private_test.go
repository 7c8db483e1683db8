package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDropPrivate: a page names neither the host nor a serial number nor where the
// driver's files were, and keeps of a log what a claim is about.
func TestDropPrivate(t *testing.T) {
	dir := t.TempDir()
	inventory := `{"schema": "gpuslot-inventory/1", "host": {"name": "secret-host", "cpus": 16, "memory_mib": 1}, "driver": "580.159.04", "cuda": "13.0", "gpus": []}`
	files := map[string]string{
		"inventory.json":              strings.Replace(inventory, "{\"name\"", "{\n    \"name\"", 1),
		"sharing-mix/bench.json":      `{"host": {"name": "secret-host"}}`,
		"sharing-mix/logs/1.txt":      "secret-host",
		"facts/plan-1.txt":            "secret-host: 16 CPUs",
		"facts/environment-1.txt":     "PATH=/secret-place",
		"facts/nvidia-smi-1.txt":      "Name : H200\n    Serial Number   : 4711\n    GPU UUID : GPU-1\n",
		"machine.txt":                 "secret-host",
		"driver.json":                 `{"kernel_module": "580.159.04", "files": {"libcuda.so.1": {"path": "/secret-place/libcuda.so.1", "real_path": "/secret-place/x", "sha256": "ab"}}}`,
		"truth/T8.json":               `{"id": "T8", "values": {"assert_code": 710}, "records": [{"s": 1, "who": "log", "said": "x Accepting connection..."}, {"s": 1, "who": "log", "said": "Server is handling a fatal GPU error."}, {"s": 2, "who": "control", "said": "kept"}]}`,
		"truth/unlike-a-trial.json":   `{}`,
		"facts/mig-1.txt":             "profiles",
		"known-load/logs/deep/a.txt":  "secret-host",
		"facts/inventory-1.txt":       `"name": "secret-host"`,
		"facts/system-1.txt":          "Linux secret-host",
		"node/gpuslotd.log":           "kept",
		"sharing-training/bench.json": `{"name": "another"}`,
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := dropPrivate(dir); err != nil {
		t.Fatal(err)
	}
	all := ""
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			all += path + "\n" + string(b) + "\n"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"secret", "4711", "Accepting connection"} {
		if strings.Contains(all, gone) {
			t.Errorf("%q is left in\n%s", gone, all)
		}
	}
	for _, kept := range []string{"GPU-1", "handling a fatal", `"said": "kept"`, `"name": "node"`, "node: 16 CPUs", `"path": "libcuda.so.1"`, "profiles", `"name": "another"`} {
		if !strings.Contains(all, kept) {
			t.Errorf("%q is not in\n%s", kept, all)
		}
	}
}
