package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRelease makes a release of a checkout whose newest heading is a version. Part of the campaign: it compiles and
// links all programs once more.
func TestRelease(t *testing.T) {
	if os.Getenv("GPUSLOT_CAMPAIGN") == "" {
		t.Skip("part of make campaign")
	}
	ctx := t.Context()
	checkout, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	run(ctx, t, "git", "clone", "-q", "../..", checkout)
	changelog := filepath.Join(checkout, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), "\n## ")
	if !ok {
		t.Fatal("CHANGELOG.md has no heading")
	}
	newest := "\n## 9.8.7\n\n- [FEATURE] test: this is new.\n\n## 9.8.6\n\n- [FEATURE] test: this is older.\n\n## "
	if err := os.WriteFile(changelog, []byte(before+newest+after), 0o644); err != nil {
		t.Fatal(err)
	}
	release := func(out string) (string, error) {
		said, err := exec.CommandContext(ctx, "make", "-s", "-C", checkout, "release", "OUT="+out, "ARCHES=amd64").CombinedOutput()
		return string(said), err
	}
	if said, err := release(out); err == nil || !strings.Contains(said, "commit or remove what git status lists") {
		t.Errorf("a release of what is not committed: %v\n%s", err, said)
	}
	run(ctx, t, "git", "-C", checkout, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "9.8.7")
	commit := strings.TrimSpace(run(ctx, t, "git", "-C", checkout, "rev-parse", "HEAD"))
	if said, err := release(out); err != nil || !strings.Contains(said, "git tag v9.8.7") {
		t.Fatalf("make release: %v\n%s", err, said)
	}

	want := []string{"/RELEASE_NOTES.md", "/SHA256SUMS", "/gpuslot-9.8.7-1.x86_64.rpm", "/gpuslot_9.8.7-1_amd64.deb", "/gpuslot_9.8.7_amd64.sbom.cdx.json"}
	if got := files(t, out); !slices.Equal(got, want) {
		t.Errorf("the release is %q, want %q", got, want)
	}
	if sums := run(ctx, t, "env", "-C", out, "sha256sum", "-c", "SHA256SUMS"); strings.Count(sums, ": OK") != len(want)-1 {
		t.Errorf("checksums:\n%s", sums)
	}
	notes, err := os.ReadFile(filepath.Join(out, "RELEASE_NOTES.md"))
	if err != nil || !regexp.MustCompile(`^# gpuslot 9\.8\.7\n`).Match(notes) || !strings.Contains(string(notes), "this is new") || strings.Contains(string(notes), "this is older") {
		t.Errorf("the notes are (%v)\n%s", err, notes)
	}
	root := t.TempDir()
	run(ctx, t, "dpkg-deb", "-x", filepath.Join(out, "gpuslot_9.8.7-1_amd64.deb"), root)
	if got := run(ctx, t, root+"/usr/bin/gpuslot", "--version"); !strings.HasPrefix(got, "gpuslot v9.8.7 (commit "+commit) {
		t.Errorf("the program says %s", got)
	}

	if said, err := release(out); err == nil || !strings.Contains(said, "is not empty") {
		t.Errorf("a second release into the same folder: %v\n%s", err, said)
	}
	run(ctx, t, "git", "-C", checkout, "tag", "v9.8.7", "HEAD~1")
	if said, err := release(out + "2"); err == nil || !strings.Contains(said, "is tagged at") {
		t.Errorf("a second release of one version: %v\n%s", err, said)
	}
}
