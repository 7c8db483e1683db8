package upstream

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages is the folder of the reports.
const pages = "../../docs/upstream"

// page is what a report has for a machine: preparation as root, configuration,
// submit files.
type page struct {
	prepare, config string
	submits         []string
}

var block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// readPages reads all reports by the names of their files.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pages, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]page)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".md")
		if name == "README" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			switch m[1] {
			case "sh":
				p.prepare += m[2]
			case "conf":
				p.config += m[2]
			case "submit":
				p.submits = append(p.submits, m[2])
			default:
				t.Errorf("%s: a block of %q", name, m[1])
			}
		}
		all[name] = p
	}
	return all
}

// parts are what a report consists of, in this order.
var parts = []string{
	"# ", "**Symptom.**", "**Version.**", "**Cause.**", "## Reproduction", "## Change", "## What it would remove",
}

// TestForm: each report has all parts, a reproduction that is run, and a line in the
// list of reports.
func TestForm(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(pages, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := readPages(t)
	for name, p := range all {
		text, err := os.ReadFile(filepath.Join(pages, name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		from := 0
		for _, part := range parts {
			at := strings.Index(string(text)[from:], part)
			if at < 0 {
				t.Errorf("%s: no %q where it belongs", name, part)
				continue
			}
			from += at
		}
		if len(p.submits) == 0 {
			t.Errorf("%s: no submit file", name)
		}
		if !slices.ContainsFunc(reproductions, func(r reproduction) bool { return r.page == name }) {
			t.Errorf("%s: no reproduction is run", name)
		}
		if !strings.Contains(string(list), "["+name+"]("+name+".md)") {
			t.Errorf("%s: not in README.md", name)
		}
	}
	for _, r := range reproductions {
		if _, there := all[r.page]; !there {
			t.Errorf("%s: no such report", r.page)
		}
	}
}
