package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/driver"
)

// TestSeveralAccounts asks real control daemons for several accounts at once:
// 555 is started again with the flag, 535 and 550 are found to lack it.
func TestSeveralAccounts(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) { severalAccounts(t, newNode(t, branch), branch == "555") })
	}
}

func severalAccounts(t *testing.T, n *node, can bool) {
	agent := n.start()
	first := n.await("all GPUs to accept", accepts)
	for _, c := range first.MPS {
		if c.Name == "multi-user" && (c.Has == nil || *c.Has != can) {
			t.Errorf("%s was found to be %v: %s", c.Name, c.Has, c.How)
		}
	}
	if lacks := strings.Contains(strings.Join(first.MissingEnforcement, "\n"), "serves one account at a time"); lacks == can {
		t.Errorf("missing walls: %q", first.MissingEnforcement)
	}
	good, err := os.ReadFile(filepath.Join(n.dir, "gpuslot.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n.configure(string(good) + "[sharing]\ntenancy = \"multi-user\"\n")
	if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if !can {
		s := n.await("the refusal", func(s *api.Status) bool { return s.ConfigError != "" })
		if !accepts(s) || pids(s) != pids(first) || !strings.Contains(s.ConfigError, "driver 555 or newer") {
			t.Errorf("refused with %q: %+v", s.ConfigError, s.GPUs)
		}
		return
	}
	s := n.await("daemons for several accounts", func(s *api.Status) bool {
		return accepts(s) && s.ConfigError == "" && pids(s) != pids(first)
	})
	for _, pid := range pids(s) {
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !strings.Contains(string(args), "\x00-multiuser-server\x00") {
			t.Errorf("process %d: %q, %v", pid, args, err)
		}
	}
}
