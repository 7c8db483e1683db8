package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestLastOne: only where no other process can be in the cgroup.
func TestLastOne(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, own, ok := strings.Cut("\n"+string(text), "\n0::")
	if !ok {
		t.Skip("this host has no cgroup v2")
	}
	own, _, _ = strings.Cut(own, "\n")
	self := strconv.Itoa(os.Getpid()) + "\n"
	for name, c := range map[string]struct {
		processes string
		below     string
		want      bool
	}{
		"alone":             {self, "", true},
		"a child":           {self + "1\n", "", false},
		"a child before":    {"1\n" + self, "", false},
		"a cgroup below":    {self, "deeper", false},
		"of another tree":   {"", "", false},
		"another namespace": {"0\n", "", false},
		"no such file":      {"-", "", false},
	} {
		mount := t.TempDir()
		dir := filepath.Join(mount, own)
		if err := os.MkdirAll(filepath.Join(dir, c.below), 0o755); err != nil {
			t.Fatal(err)
		}
		if c.processes != "-" {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(c.processes), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := lastOne(mount); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestHoldDue: a job that ends asks while HTCondor is to hold any.
func TestHoldDue(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	if holdDue(socket) {
		t.Error("without a word of the agent")
	}
	if err := os.MkdirAll(filepath.Join(dir, "condor"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("some", filepath.Join(dir, "condor", "holds")); err != nil {
		t.Fatal(err)
	}
	if !holdDue(socket) {
		t.Error("with one")
	}
}
