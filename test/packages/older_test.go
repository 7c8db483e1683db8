package packages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// inC is a file that came with decision 15. The agent before it answers no hook in C: the upgrade that changed most.
const inC = "cmd/gpuslot-start/supervise.c"

// TestOlder: which commit the older package is of, and that a clone without it is recognised.
func TestOlder(t *testing.T) {
	ctx := t.Context()
	commit, err := olderCommit(ctx, "../..")
	if err != nil {
		t.Skip(err)
	}
	if out, err := git(ctx, "../..", "ls-tree", commit, inC, "docs/install.md"); err != nil || !strings.HasSuffix(out, "\tdocs/install.md") || strings.Contains(out, inC) {
		t.Errorf("commit %s has %s, %v", commit, out, err)
	}
	shallow := t.TempDir()
	here, err := filepath.Abs("../..")
	must(t, err)
	_, err = git(ctx, ".", "clone", "-q", "--no-checkout", "--depth", "1", "file://"+here, shallow)
	must(t, err)
	if commit, err := olderCommit(ctx, shallow); !errors.Is(err, errNoHistory) {
		t.Errorf("a shallow clone has the older commit %q, %v", commit, err)
	}
}

var errNoHistory = errors.New("no package of an older commit: this clone has no git history")

// olderCommit is the last one whose programs for jobs are not in C.
func olderCommit(ctx context.Context, repository string) (string, error) {
	added, err := git(ctx, repository, "log", "--diff-filter=A", "--format=%H", "--", inC)
	if err != nil || added == "" {
		return "", errors.Join(errNoHistory, err)
	}
	first := added[strings.LastIndexByte(added, '\n')+1:]
	commit, err := git(ctx, repository, "rev-parse", "-q", "--verify", first+"^^{commit}")
	if err != nil { // the oldest commit of a shallow clone adds all files
		return "", errNoHistory
	}
	return commit, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// older is the .deb of that commit as version 0.0.9. It is built once and kept in the cache.
func older(ctx context.Context) (string, error) {
	commit, err := olderCommit(ctx, "../..")
	if err != nil {
		return "", err
	}
	cache := os.Getenv("GPUSLOT_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(base, "gpuslot")
	}
	deb := filepath.Join(cache, "package-"+commit[:12]+".deb")
	if _, err := os.Stat(deb); err == nil {
		return deb, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, ".package-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	source, out := filepath.Join(work, "source"), filepath.Join(work, "out")
	if _, err := git(ctx, ".", "clone", "-q", "--shared", "--no-checkout", "../..", source); err != nil {
		return "", fmt.Errorf("clone: %w", err)
	}
	if _, err := git(ctx, source, "checkout", "-q", commit); err != nil {
		return "", fmt.Errorf("check out %s: %w", commit, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", source, "packages", "OUT="+out, "ARCHES=amd64", "VERSION=v0.0.9")
	// A make around this one has variables of its own for the present commit.
	cmd.Env = slices.DeleteFunc(append(os.Environ(), "MAKEFLAGS=", "MFLAGS="), func(v string) bool { return strings.HasPrefix(v, "SOURCE_DATE_EPOCH=") })
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make packages of %s: %w\n%s", commit, err, text)
	}
	found, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("packages of %s: %v, %w", commit, found, err)
	}
	return deb, os.Rename(found[0], deb)
}
