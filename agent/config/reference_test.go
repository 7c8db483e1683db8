package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	referenceFile = "../../etc/gpuslot.toml"
	documentation = "../../docs/configuration.md"
)

// examples are the lines of the reference file that show tables with a name.
var examples = map[string]string{
	"model": `whole = 2`,
	"host":  `reserved_vram = 1024`,
	"gpu":   `mode = "whole"`,
}

// TestReferenceFile holds etc/gpuslot.toml to the keys of the code.
func TestReferenceFile(t *testing.T) { golden(t, referenceFile, reference(t)) }

// TestReferenceIsDefault: the file as it is installed changes nothing.
func TestReferenceIsDefault(t *testing.T) {
	c, err := Load(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, Default(), c)
}

// TestReferenceDefaults: with every default uncommented, nothing changes
// either, so the documented defaults are the true ones.
func TestReferenceDefaults(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = regexp.MustCompile(`^#([[a-z])`).ReplaceAllString(line, "$1")
	}
	c := parse(t, joined(strings.Join(lines, "\n")))
	for _, k := range Keys() {
		if n := strings.Count(string(text), "\n#"+k.Name+" = "+k.Default+"\n"); n != 1 {
			t.Errorf("%s.%s stands %d times in %s", k.Table, k.Name, n, referenceFile)
		}
	}
	other := gpu.GPU{UUID: uuidB, Name: "a model without a table"}
	want := Default().For("elsewhere", other)
	want.ModeFrom, want.WholeFrom, want.TenancyFrom = "[sharing]", "[sharing]", "[sharing]"
	if d := cmp.Diff(want, c.For("elsewhere", other)); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	if got := c.For("wn-gpu1.example.org", v100(uuidA)); got.Whole != 2 || got.ReservedVRAM != 1024 || got.Mode != ModeWhole {
		t.Errorf("the examples lead to %+v", got)
	}
	if got := c.Configured("anywhere"); len(got) != 1 || got[0] != uuidA {
		t.Errorf("configured are %v", got)
	}
	c.sharing, c.models, c.hosts, c.gpus = table{}, map[string]table{}, nil, map[gpu.UUID]table{}
	equal(t, Default(), c)
}

// TestDocumentation holds the tables of docs/configuration.md to the keys of
// the code; the text around them is written by hand.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- (keys|advanced): ([a-z_]+) -->\n).*?(<!-- end -->\n)`)
	everyday := exampleKeys(t)
	seen := map[string]bool{}
	want := marked.ReplaceAllStringFunc(string(text), func(part string) string {
		m := marked.FindStringSubmatch(part)
		if m[2] == "keys" && (isNamed(m[3]) || len(keysIn(m[3], everyday, true)) > 0) {
			seen[m[3]] = true
			return m[1] + keyTable(m[3], keysIn(m[3], everyday, true)) + m[4]
		}
		seen[m[3]+" advanced"] = true
		return m[1] + keyTable(m[3], keysIn(m[3], everyday, false)) + m[4]
	})
	for _, table := range Tables() {
		for _, in := range []bool{true, false} {
			want := map[bool]string{true: table.Name, false: table.Name + " advanced"}[in]
			if (in && table.Named || len(keysIn(table.Name, everyday, in)) > 0) && !seen[want] {
				t.Errorf("%s has no keys of %s", documentation, want)
			}
		}
	}
	golden(t, documentation, want)
}

// TestDocumentedExamples: every TOML example of the documentation is accepted.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, b := range blocks {
		if c := parse(t, b[1]); reflect.DeepEqual(c, Default()) {
			t.Errorf("an example that says nothing:\n%s", b[1])
		}
	}
}

// TestKeysAreComplete: no key without its texts, and the default is one that
// the key itself accepts.
func TestKeysAreComplete(t *testing.T) {
	for _, k := range Keys() {
		if k.Type == "" || !strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("%s.%s: type %q, meaning %q", k.Table, k.Name, k.Type, k.Meaning)
		}
		header := "[" + k.Table + "]"
		if k.Table == "gpu" {
			header = `[gpu."` + uuidA + `"]`
		}
		if _, err := Parse("default", []byte(header+"\n"+k.Name+" = "+k.Default+"\n")); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// reference writes the reference file: every key with its default, those that an example
// site sets first, and all others in an appendix.
func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString("#:schema /usr/share/gpuslot/gpuslot.schema.json\n") // for editors that know taplo's directive
	b.WriteString(comment(`gpuslot.toml: how the GPUs of this host are shared among HTCondor jobs.

Every key is shown with its default: remove the # before one to change it. An empty file means the same as this one. One identical file can serve a whole farm. Most sites need only the keys of the first part. The second part is an appendix of keys that few sites change.

A key in a more special table wins over the same key in [sharing]: first [model."…"], then each [host."…"] that matches, then [gpu."…"].

Check a changed file with: gpuslot check-config, gpuslot plan
Then make the agent read it: systemctl reload gpuslotd
A file with errors is refused as a whole; the agent keeps what it had.
Reference: docs/configuration.md
`))
	everyday := exampleKeys(t)
	writeKeys := func(keys []Key) {
		for _, k := range keys {
			b.WriteString("\n" + comment(k.Meaning) + comment("Value: "+k.Type+".") + fmt.Sprintf("#%s = %s\n", k.Name, k.Default))
		}
	}
	for _, table := range Tables() {
		keys := keysIn(table.Name, everyday, true)
		switch {
		case table.Named:
			b.WriteString("\n" + comment(table.Meaning))
			b.WriteString("#" + strings.Replace(table.Header, "GPU-…", uuidA, 1) + "\n#" + examples[table.Name] + "\n")
		case len(keys) > 0:
			b.WriteString("\n" + comment(table.Meaning) + table.Header + "\n")
		}
		writeKeys(keys)
	}
	b.WriteString("\n" + comment(appendix+"\nFew sites change these keys. A TOML file may have each table once: if a table is above, copy the key into it."))
	for _, table := range Tables() {
		keys := keysIn(table.Name, everyday, false)
		switch {
		case len(keys) == 0:
			continue
		case len(keysIn(table.Name, everyday, true)) > 0:
			b.WriteString("\n" + comment(moreOf+table.Header))
		default:
			b.WriteString("\n" + comment(table.Meaning) + table.Header + "\n")
		}
		writeKeys(keys)
	}
	return b.String()
}

const (
	appendix = "Appendix: advanced keys."
	moreOf   = "More keys of "
)

// exampleKeys are the keys that the example sites set, as "table.name".
func exampleKeys(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../docs/examples/*.toml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d example sites: %v", len(files), err)
	}
	set := map[string]bool{}
	for _, file := range files {
		var tables map[string]map[string]any
		if _, err := toml.DecodeFile(file, &tables); err != nil {
			t.Fatal(err)
		}
		for name, keys := range tables {
			if !isNamed(name) {
				for key := range keys {
					set[name+"."+key] = true
				}
				continue
			}
			for _, one := range keys {
				for key := range one.(map[string]any) {
					set[name+"."+key], set["sharing."+key] = true, true
				}
			}
		}
	}
	return set
}

// keysIn are the keys of a table that are of the set, or that are not.
func keysIn(table string, set map[string]bool, in bool) []Key {
	var keys []Key
	for _, k := range Keys() {
		if k.Table == table && set[k.Table+"."+k.Name] == in {
			keys = append(keys, k)
		}
	}
	return keys
}

// joined has the keys of the appendix in the tables that stand above it, as its text says.
func joined(text string) string {
	above, below, _ := strings.Cut(text, "# "+appendix)
	for _, block := range strings.Split(below, "# "+moreOf)[1:] {
		header, keys, _ := strings.Cut(block, "\n")
		if next := strings.Index(keys, "\n["); next >= 0 {
			below = strings.Replace(below, keys[:next], "", 1)
			keys = keys[:next]
		} else {
			below = strings.Replace(below, keys, "", 1)
		}
		above = strings.Replace(above, "\n"+header+"\n", "\n"+header+"\n"+keys+"\n", 1)
	}
	return above + below
}

// comment wraps text; Markdown's code marks mean nothing in TOML.
func comment(text string) string {
	var b strings.Builder
	for _, paragraph := range strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "`", ""), "\n") {
		line := "#"
		for _, word := range strings.Fields(paragraph) {
			if len(line)+1+len(word) > 78 {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// keyTable writes the Markdown table of one TOML table.
func keyTable(name string, keys []Key) string {
	var b strings.Builder
	for _, t := range Tables() {
		if t.Name == name {
			b.WriteString("\n" + t.Meaning + "\n\n")
		}
	}
	if len(keys) == 0 {
		return b.String()
	}
	b.WriteString("| key | what may be written | default | meaning |\n|--|--|--|--|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", k.Name, strings.ReplaceAll(k.Type, "<", "&lt;"), k.Default, strings.ReplaceAll(k.Meaning, "|", `\|`))
	}
	return b.String() + "\n"
}

// golden compares a file with what the code makes of it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s does not follow the keys of the code; write it again with\n\tgo test ./agent/config -update\n(-want +file):\n%s", path, d)
	}
}
