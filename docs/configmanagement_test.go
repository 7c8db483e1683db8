package docs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// installed is what the packages put on a node, below a directory: "make install"
// with empty programs.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"gpuslotd", "gpuslot", "gpuslot-condor", "gpuslot-start"} {
		path := filepath.Join(dir, "bin", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "..", "-s", "install-node", "BIN="+filepath.Join(dir, "bin"), "DESTDIR="+root).CombinedOutput(); err != nil {
		t.Fatalf("make install-node: %v\n%s", err, out)
	}
	return root
}

// TestConfigManagement: the Ansible role and the Puppet class name no file, unit
// or package that is not there.
func TestConfigManagement(t *testing.T) {
	root := installed(t)
	units := filepath.Join(root, "usr/lib/systemd/system")
	recipe, err := os.ReadFile("../etc/packaging/gpuslot.yaml")
	if err != nil || !strings.Contains(string(recipe), "\nname: gpuslot\n") {
		t.Fatalf("the package has another name, %v", err)
	}
	for _, dir := range []string{"../etc/ansible", "../etc/puppet"} {
		text := texts(t, dir)
		paths := regexp.MustCompile(`(/usr/bin/gpuslot|/etc/gpuslot/[\w.]+)`).FindAllString(text, -1)
		if len(paths) < 2 {
			t.Errorf("%s names %v", dir, paths)
		}
		for _, p := range paths {
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Errorf("%s names %s, which the packages do not have", dir, p)
			}
		}
		for _, u := range regexp.MustCompile(`\bgpuslot[\w@-]*\.(?:service|socket)\b`).FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(units, u)); err != nil {
				t.Errorf("%s names %s, which the packages do not have", dir, u)
			}
		}
		for _, want := range []string{"gpuslot check-config %", "60-gpuslot-access-point.config"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", dir, want)
			}
		}
	}
}

// TestConfigManagementReads: all of it is YAML or JSON, and every variable of the
// role has a default.
func TestConfigManagementReads(t *testing.T) {
	read := map[string]any{}
	walk(t, "../etc/ansible", func(path string, text []byte) {
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		read[strings.TrimPrefix(path, "../etc/ansible/")] = v
	})
	defaults, _ := read["roles/gpuslot/defaults/main.yml"].(map[string]any)
	for _, name := range regexp.MustCompile(`\bgpuslot_\w+`).FindAllString(texts(t, "../etc/ansible"), -1) {
		if _, ok := defaults[name]; !ok {
			t.Errorf("%s has no default", name)
		}
	}
	text, err := os.ReadFile("../etc/puppet/gpuslot/metadata.json")
	if err != nil || !json.Valid(text) {
		t.Errorf("metadata.json: %v", err)
	}
}

// TestConfigManagementLint runs the linters that are installed; Debian has all three.
func TestConfigManagementLint(t *testing.T) {
	for _, lint := range [][]string{
		{"ansible-lint", "--offline", "--strict", "../etc/ansible/gpuslot.yml", "../etc/ansible/roles/gpuslot"},
		{"puppet-lint", "--fail-on-warnings", "../etc/puppet/gpuslot/manifests"},
		{"puppet", "parser", "validate", "../etc/puppet/gpuslot/manifests/init.pp"},
	} {
		t.Run(lint[0], func(t *testing.T) {
			if _, err := exec.LookPath(lint[0]); err != nil {
				t.Skipf("%s is not installed here: apt-get install %s", lint[0], lint[0])
			}
			if out, err := exec.CommandContext(t.Context(), lint[0], lint[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// texts are all files below a directory, one after the other.
func texts(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	walk(t, dir, func(_ string, text []byte) { b.Write(text) })
	return b.String()
}

func walk(t *testing.T, dir string, each func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		each(path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
