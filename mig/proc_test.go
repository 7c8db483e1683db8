package mig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzNodes: the device nodes of an instance are those that the driver lists for it.
func FuzzNodes(f *testing.F) {
	f.Add("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi11/access 102\n", 0, 1)
	f.Add("gpu0/gi1/ 7\ngpu0/gi1/\n", 0, 1)
	f.Fuzz(func(t *testing.T, text string, minor, gi int) {
		root := t.TempDir()
		dir := filepath.Join(root, "driver", "nvidia-caps")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		majors := "Character devices:\n509 nvidia-caps\n"
		for name, text := range map[string]string{filepath.Join(dir, "mig-minors"): text, filepath.Join(root, "devices"): majors} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		nodes, unclear := Proc{Root: root}.nodes(minor, gi)
		if len(unclear) > 0 {
			t.Errorf("%+v from %q", unclear, text)
		}
		for node := range nodes {
			if unix.Major(node) != 509 || !strings.Contains(text, fmt.Sprint(unix.Minor(node))) {
				t.Errorf("%d:%d from %q", unix.Major(node), unix.Minor(node), text)
			}
		}
	})
}
