package mps

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPublishedLogs: of what others published of drivers that cannot be fetched here, the lines
// that mean something are read, and all others are ignored.
func TestPublishedLogs(t *testing.T) {
	want := map[string][]EventKind{
		"580-k8s-device-plugin-1614.txt": {ClientWaits, ServerStarting},
		"580-bottlerocket-415.txt":       {ClientWaits, ServerLimited},
	}
	files, err := filepath.Glob("testdata/published/*.txt")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s names no source", file)
		}
		var got []EventKind
		for line := range strings.Lines(string(text)) {
			if e, ok := ParseEvent(line); ok {
				got = append(got, e.Kind)
			}
		}
		if !slices.Equal(got, want[filepath.Base(file)]) {
			t.Errorf("%s: %q, want %q", file, got, want[filepath.Base(file)])
		}
	}
}

// TestUnknownRepliesClose: a reply in a form that no driver was seen to print is no answer.
func TestUnknownRepliesClose(t *testing.T) {
	for _, reply := range []string{"PID 337", "337 (ACTIVE)", "warning: deprecated\n337", "337,338"} {
		if pids, err := parsePIDs(reply); err == nil {
			t.Errorf("%q is the servers %d", reply, pids)
		}
	}
	for _, limit := range []string{"", "31.5G", "32256 MiB", "0x7e0000000", "31G (exact)"} {
		if len(compare(Wanted{Limit: 32256, ThreadPercentage: 100}, limit, "100.0")) != 1 {
			t.Errorf("%q is the limit", limit)
		}
	}
	for _, status := range []string{"READY", "", "ACTIVE 2", "active"} {
		s, ok := parseServer(337, []string{status, "100.0", "31G", ""})
		if !ok || s.Status != Unreadable {
			t.Errorf("the status %q is %q", status, s.Status)
		}
	}
}
