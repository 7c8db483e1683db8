package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJournalArgs(t *testing.T) {
	since := time.Unix(1770370476, 380_007_999)
	unit := MPSUnit("GPU-00000000-0000-4000-8000-000000000000")
	args := journalArgs(unit, since)
	for _, want := range []string{"--namespace=+gpuslot", "--unit=" + unit, "--output=cat", "--lines=2000", "--since=@1770370476.380007"} {
		if !slices.Contains(args, want) {
			t.Errorf("%q lack %s", args, want)
		}
	}
	for _, a := range journalArgs(unit, time.Time{}) {
		if strings.HasPrefix(a, "--since") {
			t.Errorf("no time became %s", a)
		}
	}
}

func TestLogRefusesOtherNames(t *testing.T) {
	if lines, err := (MPSUnits{}).Log(t.Context(), "GPU-x --rotate", time.Time{}); err == nil {
		t.Errorf("%q", lines)
	}
}

// TestLongLogKeepsItsEnd: what was written last counts, however much stands before it.
func TestLongLogKeepsItsEnd(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \" $* \" in *\" --reverse \"*) r=-r;; *) r=;; esac\n" +
		"seq -f '%0600.0f' 1 2000 | sort $r\n"
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	lines, err := MPSUnits{}.Log(t.Context(), "GPU-00000000-0000-4000-8000-000000000000", time.Time{})
	if err != nil || len(lines) < 2 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	last, before := lines[len(lines)-1], lines[len(lines)-2]
	if !strings.HasSuffix(last, "02000") || !strings.HasSuffix(before, "01999") {
		t.Errorf("the last lines end in %q, %q", before[max(0, len(before)-5):], last[max(0, len(last)-5):])
	}
}

// TestCapped: no log is too long to be read.
func TestCapped(t *testing.T) {
	var c capped
	part := make([]byte, maxJournal/3)
	for range 5 {
		if n, err := c.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if c.kept.Len() != maxJournal {
		t.Errorf("%d bytes are kept", c.kept.Len())
	}
}

// TestJournalConfig: the journal is bounded on disk and in memory, and so is what
// one unit may write to it.
func TestJournalConfig(t *testing.T) {
	for _, want := range []string{"[Journal]", "SystemMaxUse=256M", "RuntimeMaxUse=64M", "RateLimitIntervalSec=30s", "RateLimitBurst=2000", "LineMax=2K", "ForwardToSyslog=no"} {
		if !slices.Contains(strings.Split(JournalConfig, "\n"), want) {
			t.Errorf("%s lacks %s", JournalConfigFile, want)
		}
	}
}
