package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sanitizedNode is a node for a fuzz target, with nothing made on it, and a directory.
func sanitizedNode(f *testing.F) (n *Node, dir string) {
	f.Helper()
	Dir(f)
	build, err := BuildSanitized(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	dir = f.TempDir()
	return &Node{Dir: build, State: filepath.Join(dir, "state"), lib: filepath.Join(build, "lib")}, dir
}

// Any file is made into a node or refused with one sentence; the sanitizers
// watch, and what is accepted is JSON.
func FuzzNodeFile(f *testing.F) {
	n, dir := sanitizedNode(f)
	example, err := os.ReadFile("../../docs/examples/v100s-8.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, seed := range []string{threeGPUs, `{"gpus": []}`, `{"gpus": [{"model": "T4", "name": "a\u0026\"\\b"}]}`, `{"gpus": [{"model":`, `[[[[`, `"\u00`,
		`{"a": "\`, `{"gpus": [1e5, -1, 007, 1.]}`, "\ufeff{}", `{"gpus": [{"model": "T4", "index": 3}, {"model": "T4", "index": 3}]} `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.json", os.Getpid()))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "--state", file+".state", "make", file)
		switch {
		case code == 0 && !json.Valid([]byte(text)):
			t.Errorf("took %q, which is no JSON", text)
		case code == 1 && (!strings.HasPrefix(out, "simgpu: "+file+": ") || strings.Count(out, "\n") != 1):
			t.Errorf("refused %q with %q", text, out)
		case code != 0 && code != 1:
			t.Errorf("exit code %d for %q: %s", code, text, out)
		}
	})
}

// reference is PyTorch's reading of CUDA_VISIBLE_DEVICES (torch/cuda/__init__.py,
// written against the driver), for whole GPUs.
func reference(list string, uuids []string) []string {
	prefix := ""
	if strings.HasPrefix(list, "GPU-") {
		prefix = "GPU-"
	} else if strings.HasPrefix(list, "MIG-") {
		return nil // the node has none
	}
	var chosen []string
	for entry := range strings.SplitSeq(list, ",") {
		device := ""
		if prefix != "" {
			device = abbreviated(entry, prefix, uuids)
		} else if i := leadingNumber(entry); i >= 0 && i < len(uuids) {
			device = uuids[i]
		}
		if device == "" {
			break // the first invalid entry ends the list
		}
		for _, c := range chosen {
			if c == device {
				return nil // one twice: none
			}
		}
		chosen = append(chosen, device)
	}
	return chosen
}

func abbreviated(entry, prefix string, uuids []string) string {
	found := ""
	for _, u := range uuids {
		if strings.HasPrefix(entry, prefix) && strings.HasPrefix(u, entry) {
			if found != "" {
				return "" // ambiguous
			}
			found = u
		}
	}
	return found
}

// leadingNumber is -1 without one; as strtol, spaces and a sign may stand before it.
func leadingNumber(s string) int {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	s, minus := strings.CutPrefix(s, "-")
	if !minus {
		s = strings.TrimPrefix(s, "+")
	}
	n, digits := 0, 0
	for ; digits < len(s) && s[digits] >= '0' && s[digits] <= '9'; digits++ {
		n = min(10*n+int(s[digits]-'0'), 1000)
	}
	if digits == 0 || (minus && n > 0) {
		return -1
	}
	return n
}

// The library reads every list as the reference does.
func FuzzVisibleDevices(f *testing.F) {
	n, dir := sanitizedNode(f)
	file := filepath.Join(dir, "node.json")
	if err := os.WriteFile(file, []byte(threeGPUs), 0o644); err != nil {
		f.Fatal(err)
	}
	if out, code := n.Run(f.Context(), filepath.Join(n.Dir, "bin/simgpu"), "make", file); code != 0 {
		f.Fatal(out)
	}
	order := []string{"GPU-bbbb2222-0000-4000-8000-000000000002", "GPU-aaaa1111-0000-4000-8000-000000000001", "GPU-aaaa0000-0000-4000-8000-000000000000"}
	for _, seed := range []string{"0,1,2", "2, 0", "-1", "+1,-0", "GPU-aaaa1,GPU-b", "GPU-,GPU-a", "1x,GPU-b", "MIG-x", ",0", "99999999999999999999,0", "\t1\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if strings.ContainsRune(list, 0) || len(list) > 1000 {
			t.Skip("no value of a variable")
		}
		var want []string
		for _, u := range reference(list, order) {
			want = append(want, u[4:12])
		}
		if got := n.devices(t, "CUDA_VISIBLE_DEVICES="+list); got != strings.Join(want, " ") {
			t.Errorf("%q shows %q, want %q", list, got, want)
		}
	})
}
