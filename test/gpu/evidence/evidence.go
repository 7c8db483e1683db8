// Package evidence records which driver a run of the harness met: the files, with
// their sums and versions, and every reason to doubt that a GPU was there. A result
// with a doubt is marked as simulated. Start at Look.
package evidence

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// File is one file of a driver.
type File struct {
	// Path is where it was found, Real where links lead.
	Path string `json:"path"`
	Real string `json:"real_path,omitempty"`
	// SHA256 is in hexadecimal digits.
	SHA256 string `json:"sha256,omitempty"`
	// Version is the driver's, by the file's name or its contents; empty for unknown.
	Version string `json:"version,omitempty"`
	// Simulated: it is one of test/sim.
	Simulated bool `json:"simulated,omitempty"`
	// Error is why it could not be read.
	Error string `json:"error,omitempty"`
}

// Driver is what was found.
type Driver struct {
	// Kernel is the version that the kernel module prints; empty for unknown.
	Kernel string `json:"kernel_module"`
	// Files by name: libraries, and the two programs of MPS where there are any.
	Files map[string]File `json:"files"`
	// Doubts are reasons to mark every result as simulated.
	Doubts []string `json:"doubts"`
}

// FileName is the file that Write makes.
const FileName = "driver.json"

// Write keeps it in a directory.
func (d Driver) Write(dir string) error {
	b, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, FileName), append(b, '\n'), 0o644)
}

// Simulated tells whether results must not pass for those of hardware.
func (d Driver) Simulated() bool { return len(d.Doubts) > 0 }

// The files that are looked for.
const (
	CUDA    = "libcuda.so.1"
	NVML    = "libnvidia-ml.so.1"
	Control = "nvidia-cuda-mps-control"
	Server  = "nvidia-cuda-mps-server"
)

// Host is where things are looked for.
type Host struct {
	// Version is the kernel module's file, Device a node that its driver makes.
	Version, Device string
	// Environment of the programs under test.
	Environment []string
	// Libraries are directories that the loader searches after LD_LIBRARY_PATH.
	Libraries []string
}

// Device is the node that NVIDIA's driver makes for itself.
const Device = "/dev/nvidiactl"

// Here is this machine, with the environment of this process.
func Here(ctx context.Context) Host {
	return Host{
		Version: "/proc/driver/nvidia/version", Device: Device,
		Environment: os.Environ(), Libraries: append(cached(ctx), "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
	}
}

// cached are directories of the loader's cache that hold a driver's library.
func cached(ctx context.Context) (dirs []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, program := range []string{"ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"} {
		out, err := exec.CommandContext(ctx, program, "-p").Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			name, path, found := strings.Cut(strings.TrimSpace(line), " => ")
			if found && strings.Contains(name, "x86-64") && (strings.HasPrefix(name, CUDA) || strings.HasPrefix(name, NVML)) {
				dirs = append(dirs, filepath.Dir(path))
			}
		}
		return dirs
	}
	return nil
}

// release is a driver version: 580.159.03, 615.71.
var release = regexp.MustCompile(`\b[3-9][0-9]{2}\.[0-9]{2,3}(\.[0-9]{2})?\b`)

// simulator is in every library and program of test/sim, and in scripts that start them.
var simulator = []byte("GPUSLOT_SIM")

// Look finds the driver's files as the loader and the shell do, and compares them.
func (h Host) Look() Driver {
	d := Driver{Files: map[string]File{}, Doubts: []string{}}
	if b, err := os.ReadFile(h.Version); err == nil {
		line, _, _ := strings.Cut(string(b), "\n")
		d.Kernel = release.FindString(line)
	}
	for name, dirs := range map[string][]string{
		CUDA: slices.Concat(h.list("LD_LIBRARY_PATH"), h.Libraries), NVML: slices.Concat(h.list("LD_LIBRARY_PATH"), h.Libraries),
		Control: h.list("PATH"), Server: h.list("PATH"),
	} {
		if path := first(dirs, name); path != "" {
			d.Files[name] = read(path, d.Kernel)
		}
	}
	d.Doubts = append(d.Doubts, h.doubts(d)...)
	return d
}

// list is a variable's directories.
func (h Host) list(variable string) (dirs []string) {
	for _, v := range slices.Backward(h.Environment) {
		if text, ok := strings.CutPrefix(v, variable+"="); ok {
			return slices.DeleteFunc(filepath.SplitList(text), func(dir string) bool { return dir == "" })
		}
	}
	return nil
}

func first(dirs []string, name string) string {
	for _, dir := range dirs {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

func read(path, kernel string) File {
	f := File{Path: path}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	sum := sha256.Sum256(b)
	f.SHA256 = hex.EncodeToString(sum[:])
	f.Simulated = bytes.Contains(b, simulator)
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		f.Real = real
	}
	if f.Simulated {
		return f // it names versions of other drivers
	}
	// A library's last link is named after its version; programs hold it.
	if f.Version = release.FindString(filepath.Base(f.Real)); f.Version == "" {
		switch found := release.FindAll(b, 64); {
		case kernel != "" && slices.ContainsFunc(found, func(v []byte) bool { return string(v) == kernel }):
			f.Version = kernel
		case len(found) == 1:
			f.Version = string(found[0])
		}
	}
	return f
}

// Loaded tells whether a driver is behind the device node. A node alone says nothing:
// anybody makes one, and without a driver it does not open.
func (h Host) Loaded() bool {
	f, err := os.OpenFile(h.Device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// doubts compares what was found. A driver's files are all of one version.
func (h Host) doubts(d Driver) (out []string) {
	if d.Kernel == "" {
		if !h.Loaded() {
			out = append(out, fmt.Sprintf("no kernel module of NVIDIA's is loaded: %s is not there, and %s does not open", h.Version, h.Device))
		}
	}
	for _, v := range h.Environment {
		if bytes.HasPrefix([]byte(v), simulator) {
			out = append(out, "the environment has "+v)
		}
	}
	for _, name := range []string{CUDA, NVML, Control, Server} {
		f, there := d.Files[name]
		switch {
		case there && f.Simulated:
			out = append(out, f.Path+" is a simulated one")
		case there && f.Version != "" && d.Kernel != "" && branch(f.Version) != branch(d.Kernel):
			out = append(out, fmt.Sprintf("%s is of driver %s, the kernel module of %s", f.Path, f.Version, d.Kernel))
		}
	}
	return out
}

// branch of a version: 580 of 580.159.03.
func branch(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}
