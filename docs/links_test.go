package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	dropped = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// TestLinks: what a page of the repository points at is there, down to the heading.
func TestLinks(t *testing.T) {
	pages := []string{"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md"}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			name, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(name, "://") {
				continue
			}
			to := page
			if name != "" {
				to = filepath.Join(filepath.Dir(page), name)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
			} else if section != "" && !slices.Contains(sections(read(t, to)), section) {
				t.Errorf("%s: %s has no such heading", page, m[1])
			}
		}
	}
}

// sections are the headings of a page as GitHub names them.
func sections(page string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
