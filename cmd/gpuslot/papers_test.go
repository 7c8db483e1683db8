package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// papers is where "make share" has the papers written; a plain test run only
// looks at them.
var papers = flag.String("share", "", "write manual pages and completions below this `directory`")

// TestPapers writes what the packages say about gpuslot: a manual page for each
// verb, one for the configuration and one for what HTCondor calls, and the
// shells' completions.
func TestPapers(t *testing.T) {
	dir := *papers
	if dir == "" {
		dir = t.TempDir()
	}
	writePapers(t, dir)
	again := t.TempDir()
	writePapers(t, again)
	pages := 0
	err := filepath.WalkDir(again, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(again, path)
		one, two := read(t, path), read(t, filepath.Join(dir, rel))
		if !bytes.Equal(one, two) {
			t.Errorf("%s differs between two runs", rel)
		}
		if strings.HasPrefix(rel, "man/") {
			pages++
			lookAtPage(t, rel, string(one))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := verbsBelow(root()) + 3; pages != want {
		t.Errorf("%d manual pages, want %d: gpuslot, each of its verbs, gpuslot.toml and gpuslot-condor", pages, want)
	}
}

func lookAtPage(t *testing.T, name, page string) {
	t.Helper()
	if !strings.Contains(page, "\n.TH") || strings.Count(page, "\n.SH") < 2 {
		t.Errorf("%s is no manual page:\n%.300s", name, page)
	}
	if strings.HasSuffix(name, "gpuslot-doctor.1") && !strings.Contains(page, "  error     jobs do not run") {
		t.Errorf("%s sets its list of levels as a text", name)
	}
	if strings.Contains(page, "spf13") {
		t.Errorf("%s names its generator", name)
	}
}

func verbsBelow(c *cobra.Command) int {
	n := 0
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			n += 1 + verbsBelow(sub)
		}
	}
	return n
}

func writePapers(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"man/man1", "man/man5", "man/man8", "completions"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	c := root()
	c.DisableAutoGenTag = true
	indentLists(c)
	at := sourceDate(t)
	must(t, doc.GenManTree(c, &doc.GenManHeader{Section: "1", Source: "gpuslot", Manual: "gpuslot", Date: &at}, filepath.Join(dir, "man/man1")))
	must(t, c.GenBashCompletionFileV2(filepath.Join(dir, "completions/gpuslot"), true))
	must(t, c.GenZshCompletionFile(filepath.Join(dir, "completions/_gpuslot")))
	must(t, c.GenFishCompletionFile(filepath.Join(dir, "completions/gpuslot.fish"), true))
	writePage(t, "../../docs/configuration.md", filepath.Join(dir, "man/man5/gpuslot.toml.5"), at)
	writePage(t, "../../docs/gpuslot-condor.md", filepath.Join(dir, "man/man8/gpuslot-condor.8"), at)
}

// indentLists lets the lists of the help stand in the pages line by line: they
// are set off by two blanks, for Markdown it takes four.
func indentLists(c *cobra.Command) {
	c.Long = strings.ReplaceAll(c.Long, "\n  ", "\n      ")
	for _, sub := range c.Commands() {
		indentLists(sub)
	}
}

// writePage makes a manual page of one of our papers: its chapters are the
// page's sections, its title the page's NAME.
func writePage(t *testing.T, from, to string, at time.Time) {
	t.Helper()
	section := filepath.Ext(to)[1:]
	name := strings.TrimSuffix(filepath.Base(to), "."+section)
	title, body, _ := strings.Cut(string(read(t, from)), "\n")
	text := fmt.Sprintf("%% %q %q %q %q %q\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n%s", name, section, at.Format("Jan 2006"), "gpuslot", "gpuslot",
		name, strings.TrimPrefix(title, "# "), strings.ReplaceAll(body, "\n## ", "\n# "))
	must(t, os.WriteFile(to, md2man.Render([]byte(text)), 0o644))
}

// sourceDate is the date of the pages: that of the sources, not of the build.
func sourceDate(t *testing.T) time.Time {
	t.Helper()
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil && os.Getenv("SOURCE_DATE_EPOCH") != "" {
		t.Fatal(err)
	}
	return time.Unix(seconds, 0).UTC()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
