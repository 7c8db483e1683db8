package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
)

// TestMigrationKeys: what docs/migration.md says to write is accepted.
func TestMigrationKeys(t *testing.T) {
	page := string(read(t, "../../docs/migration.md"))
	found := regexp.MustCompile("`\\[([a-z_]+)\\]` `([^`]+)`").FindAllStringSubmatch(page, -1)
	if len(found) < 12 {
		t.Fatalf("%d lines for gpuslot.toml", len(found))
	}
	for _, m := range found {
		if _, err := config.Parse("migration.md", []byte("["+m[1]+"]\n"+m[2]+"\n")); err != nil {
			t.Error(err)
		}
	}
	for _, m := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if _, err := config.Parse("migration.md", []byte(m[1])); err != nil {
			t.Error(err)
		}
	}
}

// TestMigrationCommands: the commands that the page shows for mig-parted are those
// of testdata/mig/migration.txtar; all others are ones that the program knows.
func TestMigrationCommands(t *testing.T) {
	page := string(read(t, "../../docs/migration.md"))
	script := string(read(t, "testdata/mig/migration.txtar"))
	ran := 0
	for _, block := range regexp.MustCompile("(?s)<!-- run: mig -->\n```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			args, ok := strings.CutPrefix(line, "gpuslot ")
			if !ok {
				continue
			}
			if ran++; !strings.Contains(script, "exec gpuslot --config gpuslot.toml "+args) {
				t.Errorf("no test runs %s", line)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d commands", ran)
	}
	for _, m := range regexp.MustCompile("(?m)^    gpuslot (.*)$").FindAllStringSubmatch(page, -1) {
		verb, args, err := root().Find(strings.Fields(m[1]))
		if err != nil || verb.ParseFlags(flagsOf(args)) != nil {
			t.Errorf("gpuslot %s: %v", m[1], err)
		}
	}
}

// flagsOf are the words before a redirection.
func flagsOf(args []string) []string {
	for i, a := range args {
		if a == ">" {
			return args[:i]
		}
	}
	return args
}
