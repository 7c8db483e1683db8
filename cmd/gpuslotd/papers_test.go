package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra/doc"
)

// papers is where "make share" has the manual page written.
var papers = flag.String("share", "", "write the manual page below this `directory`")

// TestPapers writes gpuslotd(8), which names every flag.
func TestPapers(t *testing.T) {
	dir := *papers
	if dir == "" {
		dir = t.TempDir()
	}
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 outside a build
	at := time.Unix(seconds, 0).UTC()
	c := command(io.Discard)
	c.DisableAutoGenTag = true
	var page strings.Builder
	if err := doc.GenMan(c, &doc.GenManHeader{Section: "8", Source: "gpuslot", Manual: "gpuslot", Date: &at}, &page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n.TH", "SIGHUP", "--release", "--no-systemd"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	path := filepath.Join(dir, "man/man8/gpuslotd.8")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
