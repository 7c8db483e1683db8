package docs

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// commented are the files whose comments people read: what gpuslot generates, what the
// packages install, and the examples.
var commented = []string{
	"../condor/testdata/*.conf", "../etc/condor/*", "../etc/auditor/*", "../etc/prometheus/*.yml", "../etc/gpuslot.toml",
	"../etc/packaging/*.conf", "../etc/packaging/*.sh", "../etc/packaging/*.yaml", "../etc/packaging/scripts/*",
	"../systemd/units/*.service", "../systemd/units/*.socket", "../systemd/units/*/*.conf",
	"examples/*.toml", "examples/simulate/*.toml",
}

// TestEnglishOfComments holds the comments of these files to the rules of the pages.
func TestEnglishOfComments(t *testing.T) {
	var files []string
	for _, pattern := range commented {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, dir := range []string{"../etc/ansible", "../etc/puppet"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 40 {
		t.Errorf("%d files", len(files))
	}
	for _, path := range files {
		for _, text := range comments(read(t, path)) {
			checkText(t, path, text)
		}
	}
}

// comments are the comments of a file that begin with #, the lines of each in one.
func comments(file string) (all []string) {
	block := ""
	for line := range strings.Lines(file + "\n") {
		text, is := strings.CutPrefix(strings.TrimSpace(line), "# ")
		switch {
		case !is || strings.HasPrefix(text, "  "), strings.HasPrefix(text, "Value: "), strings.HasPrefix(text, "GPU "):
			if block != "" {
				all = append(all, block)
			}
			block = ""
		default:
			block = strings.TrimSpace(block + " " + text)
		}
	}
	return all
}

// TestComments: how files are cut into comments.
func TestComments(t *testing.T) {
	got := comments("# one\n# two.\n#   code here\n# three\nKEY = 1\n  # four\n#five\n")
	if want := "one two.|three|four"; strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", strings.Join(got, "|"), want)
	}
}
