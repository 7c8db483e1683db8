package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLockHolderUnread: without one of the files that it reads, nobody is named.
func TestLockHolderUnread(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root := t.TempDir()
	for _, link := range []string{"", "self/fd", "self/fdinfo", "self/mountinfo"} {
		if link != "" {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, link)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/proc/"+link, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
		if h, ok := (FS{Root: root}).lockHolder(f); ok || h != (Holder{}) {
			t.Errorf("after %q: %+v", link, h)
		}
	}
}

// TestLockedFile: a file of a mount that is not in the list has no name there.
func TestLockedFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for mounts, want := range map[string]string{
		"":                     "",
		"77 1 8:1 / / rw\n":    "08:01:5",
		"7 1 8:1 / / rw\n":     "",
		"77 1\n":               "",
		"7 1 8:1\n77 1 0:23\n": "00:17:5",
		"77 1 x / / rw\n":      "",
		"77 1 8:1 / / rw\n" + strings.Repeat("7 1 8:1 / / rw\n", mostMounts/14): "", // too long
	} {
		root := t.TempDir()
		for name, text := range map[string]string{fmt.Sprintf("self/fdinfo/%d", f.Fd()): "pos:\t0\nmnt_id:\t77\nino:\t5\n", "self/mountinfo": mounts} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, ok := (FS{Root: root}).lockedFile(f, 5); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t", mounts, got, ok)
		}
	}
	for pid, want := range map[string]bool{"0": false, "1": true, "-1": false, "x": false} {
		if _, ok := flockOn("3: FLOCK  ADVISORY  WRITE "+pid+" 00:17:1203 0 EOF", "00:17:1203"); ok != want {
			t.Errorf("process %s: %t", pid, ok)
		}
	}
}

func TestUnitOf(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/condor.service\n":                 "condor.service",
		"0::/system.slice/condor.service/sub\n":             "condor.service",
		"0::/user.slice/user@1.service/app.slice/a.scope\n": "a.scope",
		"0::/\n": "",
		"12:cpu:/a.service\n1:name=systemd:/b.service\n": "b.service",
		"12:cpu:/a.service\n":                            "",
		"12:cpu\n0::/b.service\n":                        "b.service",
		"":                                               "",
		"0::/a:b.service\n":                              "a:b.service",
		"0::/user@1.service/\x1b]0;owned\a.scope\n": "user@1.service",
		"0::/user@1.service/a;reboot.scope\n":       "user@1.service",
		"0::/a\\x2db.scope\n":                       "a\\x2db.scope",
	} {
		if got := unitOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
