package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
)

// console is a command that a page shows with what it prints.
var console = regexp.MustCompile("(?s)```console\n\\$ gpuslot ([^\n]*)\n(.*?)```\n")

// TestExamplesPage runs what docs/examples.md and docs/simulate.md show, and compares
// every word.
func TestExamplesPage(t *testing.T) {
	t.Chdir("../..")
	ran := console.FindAllStringSubmatch(string(read(t, "docs/examples.md")), -1)
	if len(ran) < 3 {
		t.Fatalf("docs/examples.md shows %d commands", len(ran))
	}
	simulated := console.FindAllStringSubmatch(string(read(t, "docs/simulate.md")), -1)
	if len(simulated) < 1 {
		t.Fatal("docs/simulate.md shows no command")
	}
	ran = append(ran, simulated...)
	for _, m := range ran {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(m[1]), &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("gpuslot %s: exit code %d, stderr %q", m[1], code, stderr.String())
		}
		if d := cmp.Diff(m[2], stdout.String()); d != "" {
			t.Errorf("gpuslot %s (-page +program):\n%s", m[1], d)
		}
	}
}

// TestExampleConfigs: each configuration is accepted, stands on the page as it is
// in its file, and is planned there; each inventory is used.
func TestExampleConfigs(t *testing.T) {
	t.Chdir("../..")
	page := string(read(t, "docs/examples.md"))
	files, err := filepath.Glob("docs/examples/*")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if filepath.Ext(file) == "" {
			continue // a directory: its page has a test of its own
		}
		text := string(read(t, file))
		if !strings.Contains(page, " "+file) {
			t.Errorf("no command of docs/examples.md uses %s", file)
		}
		if filepath.Ext(file) != ".toml" {
			continue
		}
		if _, err := config.Load(file); err != nil {
			t.Error(err)
		}
		if !strings.Contains(page, "```toml\n"+text+"```\n") {
			t.Errorf("docs/examples.md does not show %s as it is", file)
		}
	}
}
