package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	// written is a command of gpuslot in the code of a page: in a line, or in a block.
	written = regexp.MustCompile("(?m)`gpuslot ([a-z][^`]*)`|^    (?:\\$ )?gpuslot ([a-z].*)$|go run \\./cmd/gpuslot ([a-z].*)$")
	// fenced is a block of code that is not indented.
	fenced = regexp.MustCompile("(?s)\n```[a-z]*\n.*?\n```")
)

// TestDocumentedCommands: each command of the pages has verbs and flags that gpuslot has.
func TestDocumentedCommands(t *testing.T) {
	t.Chdir("../..")
	pages := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		must(t, err)
		pages = append(pages, more...)
	}
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		indented := fenced.ReplaceAllStringFunc(string(text), func(block string) string { return strings.ReplaceAll(block, "\n", "\n    ") })
		for _, m := range written.FindAllStringSubmatch(indented, -1) {
			seen++
			if problem := unknownCommand(m[1] + m[2] + m[3]); problem != "" {
				t.Errorf("%s: gpuslot %s: %s", page, m[1]+m[2]+m[3], problem)
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d commands", seen)
	}
	for _, bad := range []string{"stauts", "mig plna", "status --wacth", "plan --invent node.json"} {
		if unknownCommand(bad) == "" {
			t.Errorf("gpuslot %s is not noticed", bad)
		}
	}
}

// unknownCommand says what of a command gpuslot does not have.
func unknownCommand(line string) string {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " >")
	line, _, _ = strings.Cut(line, " | jq")
	args, _, _ := strings.Cut(line, " -- ") // what follows is another program's
	words := strings.Fields(args)
	var names, flags []string
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "-"):
			name, _, _ := strings.Cut(w, "=")
			flags = append(flags, strings.TrimRight(name, ",.;)"))
		case len(flags) == 0 && !strings.ContainsAny(w, "…|") && i == len(names):
			names = append(names, w)
		}
	}
	c, rest, err := root().Find(names)
	if err != nil {
		return err.Error()
	}
	if takesNone := !strings.Contains(c.Use, " "); c.HasSubCommands() && takesNone && len(rest) > 0 && !isVariable(rest[0]) {
		return "there is no such verb: " + rest[0]
	}
	for _, f := range flags {
		if !hasFlag(c, f) {
			return "there is no flag " + f
		}
	}
	return ""
}

// isVariable: a word in capitals stands for what a user writes.
func isVariable(word string) bool { return strings.ToUpper(word) == word }

func hasFlag(c *cobra.Command, flag string) bool {
	if name, long := strings.CutPrefix(flag, "--"); long {
		return name == "" || name == "help" || name == "version" || c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil
	}
	name := strings.TrimPrefix(flag, "-")
	return name == "" || len(name) == 1 && (name == "h" || c.Flags().ShorthandLookup(name) != nil || c.InheritedFlags().ShorthandLookup(name) != nil)
}
