package evidence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// host is a machine with driver 580.159.03 in directories of the test.
func host(t *testing.T) (Host, string) {
	t.Helper()
	dir := t.TempDir()
	h := Host{
		Version: filepath.Join(dir, "version"), Device: filepath.Join(dir, "nvidiactl"),
		Environment: []string{"PATH=" + filepath.Join(dir, "bin"), "LD_LIBRARY_PATH="}, Libraries: []string{filepath.Join(dir, "lib")},
	}
	for name, text := range map[string]string{
		"version":                        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13.2.0\n",
		"bin/" + Control:                 "\x7fELF\x00580.159.03\x00",
		"bin/" + Server:                  "\x7fELF\x00no version\x00",
		"lib/libcuda.so.580.159.03":      "\x7fELF\x00530.30.02\x00580.159.03\x00",
		"lib/libnvidia-ml.so.580.159.03": "\x7fELF\x00",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	for _, name := range []string{CUDA, NVML} {
		if err := os.Symlink(strings.TrimSuffix(name, "1")+"580.159.03", filepath.Join(dir, "lib", name)); err != nil {
			t.Fatal(err)
		}
	}
	return h, dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestHardware(t *testing.T) {
	h, dir := host(t)
	d := h.Look()
	if d.Simulated() || d.Kernel != "580.159.03" || len(d.Files) != 4 {
		t.Fatalf("%+v", d)
	}
	for _, name := range []string{CUDA, NVML, Control} {
		if f := d.Files[name]; f.Version != "580.159.03" || len(f.SHA256) != 64 || !strings.HasPrefix(f.Path, dir) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestDoubts: each of these marks all results.
func TestDoubts(t *testing.T) {
	tests := []struct {
		name, want string
		change     func(h *Host, dir string)
	}{
		{"a simulated control program", "is a simulated one", func(_ *Host, dir string) {
			put(t, filepath.Join(dir, "bin", Control), "\x7fELF\x00/run/GPUSLOT_SIM_STATE\x00")
		}},
		{"a simulated library first", "is a simulated one", func(h *Host, dir string) {
			put(t, filepath.Join(dir, "other", CUDA), "GPUSLOT_SIM_STATE")
			h.Environment = append(h.Environment, "LD_LIBRARY_PATH="+filepath.Join(dir, "other"))
		}},
		{"a script that starts a simulated one", "is a simulated one", func(_ *Host, dir string) {
			put(t, filepath.Join(dir, "bin", Control), "#!/bin/sh\nGPUSLOT_SIM_STATE=/x exec /y\n")
		}},
		{"another branch's control program", "is of driver 550.163.01, the kernel module of 580.159.03", func(_ *Host, dir string) {
			put(t, filepath.Join(dir, "bin", Control), "\x7fELF\x00550.163.01\x00")
		}},
		{"the simulator's state", "the environment has GPUSLOT_SIM_STATE=/x", func(h *Host, _ string) {
			h.Environment = append(h.Environment, "GPUSLOT_SIM_STATE=/x")
		}},
		{"no kernel module", "no kernel module", func(h *Host, _ string) { h.Version = "/nonexistent" }},
		{"a device that is a file", "no kernel module", func(h *Host, _ string) {
			h.Version = "/nonexistent"
			put(t, h.Device, "")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h, dir := host(t)
			test.change(&h, dir)
			if d := h.Look(); !d.Simulated() || !strings.Contains(strings.Join(d.Doubts, "; "), test.want) {
				t.Errorf("%q, not %q", d.Doubts, test.want)
			}
		})
	}
}

// TestNoMPS: a machine without the programs of MPS is no doubt.
func TestNoMPS(t *testing.T) {
	h, dir := host(t)
	if err := os.RemoveAll(filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	d := h.Look()
	if _, there := d.Files[Control]; there || d.Simulated() {
		t.Errorf("%+v", d)
	}
}
