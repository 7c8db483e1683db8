package sim

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostLines is the longest that a file of C may be.
const mostLines = 500

// TestFilesAreShort: lines of C are few and flat.
func TestFilesAreShort(t *testing.T) {
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		if n := bytes.Count(b, []byte("\n")); n > mostLines {
			t.Errorf("%s has %d lines, more than %d", path, n, mostLines)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReservedMemory: what the driver keeps differs from driver to driver, so
// each number says where it is from; the two that were seen on real cards are
// those of the listings.
func TestReservedMemory(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	seen := map[string]string{"T4": "393", "H200": "700", "H100-80": "551", "A100-40": "424"}
	for line := range strings.Lines(n.Poke(t, "reserved")) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 || f[2] == "" {
			t.Errorf("%q does not say where its reserved memory is known from", line)
			continue
		}
		if want := seen[f[0]]; want != "" && (f[1] != want || f[2] == "inferred") {
			t.Errorf("%s keeps %s MiB (%s), want %s", f[0], f[1], f[2], want)
		}
		delete(seen, f[0])
	}
	if len(seen) > 0 {
		t.Errorf("no models %v", seen)
	}
	n = New(t, "590.48.01", "H100-80", "H200") // what CUDA has of cards of which 479 and 614 MiB were seen reserved
	for device, want := range []int{81559 - 479, 143771 - 614} {
		out, _ := n.job(t, fmt.Sprintf("device %d info", device))
		if total := fmt.Sprintf("of %d MiB: ok", want); !strings.Contains(out, total) {
			t.Errorf("device %d: %q, want %s", device, out, total)
		}
	}
}

// TestEvidence: each reply of the simulated control daemon names its evidence.
// What was run for real is held against the real daemons by a row of the
// conformance suite; what was not says so.
func TestEvidence(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(Dir(t), "bin/nvidia-cuda-mps-control"))
	cmd.Env = append(os.Environ(), "GPUSLOT_SIM_COMMANDS=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, r := range slices.Concat(noServer, notReadyServer, readyServer, strangers) {
		word, _, _ := strings.Cut(r.command, " ")
		held[word] = true
		if r.from == "" {
			t.Errorf("row %q names no evidence", r.command)
		}
	}
	commands := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			t.Fatalf("%q", line)
		}
		name, since, from := f[0], f[1], f[2]
		commands++
		switch measured := strings.HasPrefix(from, "run for real"); {
		case measured && !held[name]:
			t.Errorf("%s says %q, but no row holds it against the real daemons", name, from)
		case !measured && (!strings.HasPrefix(from, "not measured. ") || since < "590"):
			t.Errorf("%s (since %s) names no evidence: %q", name, since, from)
		}
	}
	if commands < 20 {
		t.Errorf("%d commands: is this the table?", commands)
	}
}
