package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// A node file may be TOML: the same keys, the same node.
func TestTOMLNodeFile(t *testing.T) {
	const asJSON = `{"driver": "535.183.01", "cuda": "12.2", "gpus": [
		{"model": "A100-40", "mig_enabled": true, "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"},
		{"model": "T4", "memory_mib": 15360, "compute_mode": "exclusive-process", "name": "A \"T4\" \\ of ours"}]}`
	tests := map[string]string{
		"tables": `# two GPUs
driver = "535.183.01" # an older one
cuda = '12.2'

[[gpus]]
model = "A100-40"
mig_enabled = true
uuid = "GPU-aaaa0000-0000-4000-8000-000000000000"

  [[ gpus ]]
  model="T4"
  memory_mib = 15360
  compute_mode = "exclusive-process"
  name = "A \"T4\" \\ of ours"
`,
		"a list": "driver = \"535.183.01\"\r\ncuda = \"12.2\"\r\ngpus = [ # two\n\t{ model = \"A100-40\", mig_enabled = true,\tuuid = " +
			"\"GPU-aaaa0000-0000-4000-8000-000000000000\" },\n\t{model='T4',memory_mib=15360,compute_mode=\"exclusive-process\", " +
			"name = 'A \"T4\" \\ of ours'},\n]\n",
	}
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, asJSON)
		want := n.simgpu(t, "show", "--json")
		for name, text := range tests {
			if _, err := toml.Decode(text, new(map[string]any)); err != nil {
				t.Fatalf("%s: the test's own file is no TOML: %v", name, err)
			}
			file := filepath.Join(t.TempDir(), "node.toml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			n.simgpu(t, "make", file)
			if d := cmp.Diff(want, n.simgpu(t, "show", "--json")); d != "" {
				t.Errorf("%s: not the node of the JSON file (-json +toml):\n%s", name, d)
			}
		}
	})
}

// What is wrong, or not understood, is said with its line.
func TestTOMLNodeFileErrors(t *testing.T) {
	tests := []struct{ file, want string }{
		{"", "line 1: there is no [[gpus]]"},
		{"[gpus]\n", "line 1: gpus is a list"},
		{"x = 1\ngpus = []", "line 1: x is no key of a node file"},
		{"gpus = []\ngpus = []", "line 2: a key stands twice in one table"},
		{"[[gpus]]\nmodel = \"T4\"\nmodel = \"T4\"", "line 3: a key stands twice in one table"},
		{"gpus = []\n[[gpus]]\nmodel = \"T5\"", "line 2: this table or key stands there already"},
		{"\n[[gpus]]\n\nmodel = \"T5\"", "line 2: gpus[0]: no model T5; simgpu models lists them"},
		{"host = {a = {}}\n[host.a]", "line 2: this table or key stands there already"},
		{"[host.a]\n[[host]]", "line 2: this table or key stands there already"},
		{"[host]\n[host]", "line 2: this table or key stands there already"},
		{"host = 1\n[host]", "line 2: this table or key stands there already"},
		{"host = 1\n[[host]]", "line 2: this table or key stands there already"},
		{"a.b = 1", "line 1: = belongs after the key"},
		{"\"a\" = 1", "line 1: a key of letters, digits, - and _ belongs here"},
		{"a", "line 1: = belongs after the key"},
		{"a =", "line 1: a value belongs here: a string, a whole number, true, false, a list or an inline table"},
		{"a = 1.5", "line 1: a value belongs here: a string, a whole number, true, false, a list or an inline table"},
		{"a = 01", "line 1: a value belongs here: a string, a whole number, true, false, a list or an inline table"},
		{"a = -1", "line 1: a value belongs here: a string, a whole number, true, false, a list or an inline table"},
		{"a = 1979-05-27", "line 1: a value belongs here: a string, a whole number, true, false, a list or an inline table"},
		{"a = 1 b = 2", "line 1: the line ends here; something follows"},
		{"a = \"x", "line 1: a string ends on its line"},
		{"a = \"x\ny\"", "line 1: a string ends on its line"},
		{"a = \"\"\"x\"\"\"", "line 1: a string over several lines is not understood"},
		{"a = \"\\n\"", "line 1: of the escapes only \\\" and \\\\ are understood"},
		{"a = [1\n2]", "line 2: a comma or ] belongs here"},
		{"a = {b = 1,}", "line 1: no comma belongs before }"},
		{"a = {b = 1\n}", "line 1: a comma or } belongs here"},
		{"a = {b = 1, b = 2}", "line 1: a key stands twice in one table"},
		{"a = " + strings.Repeat("[", 40), "line 1: nested too deep"},
		{"[a", "line 1: a . or ] belongs here"},
		{"[[a]\n", "line 1: ]] belongs here"},
		{"gpus = []\r", "line 1: only printable ASCII is understood"},
		{"gpus = []\n# \u00e9", "line 2: only printable ASCII is understood"},
		{"[a] b", "line 1: the line ends here; something follows"},
	}
	legs(t, func(t *testing.T, n *Node) {
		file := filepath.Join(t.TempDir(), "n.toml")
		for _, tt := range tests {
			if err := os.WriteFile(file, []byte(tt.file), 0o644); err != nil {
				t.Fatal(err)
			}
			out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "make", file)
			if want := "simgpu: " + file + ": " + tt.want + "\n"; code != 1 || out != want {
				t.Errorf("%q: exit code %d, %q, want %q", tt.file, code, out, want)
			}
		}
	})
}

// Any file is made into a node or refused with one sentence; what is accepted
// is TOML to a reader of the whole language.
func FuzzTOMLNodeFile(f *testing.F) {
	n, dir := sanitizedNode(f)
	for _, seed := range []string{"[[gpus]]\nmodel = \"T4\"\n", "gpus = [{model = 'T4'}, ]", "gpus = []\n[host]\n[host.a]\n[[host.b]]", "gpus=[[],{}]#",
		"[a]\n[[gpus]]", "gpus = []\r\nhost = \"\\\\\"", "[[host.x.y]]\n[host.x.y.z]\ngpus=1", "gpus = [\n#\n]\nhost = 'é'", "host = {}\n[host.a]\n", "host = [{}]\n[[host]]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.toml", os.Getpid()))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "--state", file+".state", "make", file)
		switch {
		case code == 1 && (!strings.HasPrefix(out, "simgpu: "+file+": ") || strings.Count(out, "\n") != 1):
			t.Errorf("refused %q with %q", text, out)
		case code != 0 && code != 1:
			t.Errorf("exit code %d for %q: %s", code, text, out)
		}
		if _, err := toml.Decode(text, new(map[string]any)); err != nil && code == 0 {
			t.Errorf("took %q, which is no TOML: %v", text, err)
		}
	})
}
