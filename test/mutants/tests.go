package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// pkg is one package of the program.
type pkg struct {
	// path is its import path without the module's.
	path  string
	sites []site
	// state is a digest of all its Go files, tests too.
	state string
}

// list finds the packages with tests that go list names, and their sites. Files with cgo
// are left out.
func list(ctx context.Context, patterns []string) ([]*pkg, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-json"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var l struct {
			Dir                                string
			Module                             struct{ Dir string }
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		dir, err := filepath.Rel(l.Module.Dir, l.Dir)
		if err != nil {
			return nil, err
		}
		if len(l.TestGoFiles)+len(l.XTestGoFiles) == 0 {
			continue
		}
		p := &pkg{path: dir}
		for _, name := range l.GoFiles {
			s, err := sitesOf(l.Module.Dir, filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			p.sites = append(p.sites, s...)
		}
		if p.state, err = digest(l.Dir); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

func digest(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(file), len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// unchanged runs the tests of a package as it is, and returns how long those of a change
// may take. A change that makes them hang is noticed.
func (p *pkg) unchanged(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	if out, err := goTest(ctx, time.Hour, p.path); err != nil {
		return 0, fmt.Errorf("the tests of %s fail without a change: %w\n%s", p.path, err, tail(out))
	}
	return time.Minute + 5*time.Since(begin), nil
}

// test runs the tests of a package with one change.
func (p *pkg) test(ctx context.Context, s site, patience time.Duration) (result, error) {
	r := result{Key: s.key(), State: p.state}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	source, err := os.ReadFile(s.file)
	if err != nil {
		return r, err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	at, err := filepath.Abs(s.file)
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {at: changed}})
	if err != nil {
		return r, err
	}
	if err := errors.Join(os.WriteFile(changed, s.apply(source), 0o644), os.WriteFile(overlay, text, 0o644)); err != nil {
		return r, err
	}
	flags := []string{"-overlay", overlay}
	if strings.HasPrefix(s.change, lockRemoved) {
		flags, patience = append(flags, "-race"), 5*patience
	}
	begin := time.Now()
	out, err := goTest(ctx, patience, p.path, flags...)
	r.Seconds = time.Since(begin).Seconds()
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err == nil:
		r.Result = survived
	case bytes.Contains(out, []byte("resource temporarily unavailable")):
		return r, fmt.Errorf("%s: the machine had no room for another process; run it again:\n%s", p.path, tail(out))
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		r.Result = notBuilt
	default:
		r.Result, r.By = caught, by(out)
	}
	return r, nil
}

// toBuild is how long a package and its tests may take to compile, on a machine with other work.
const toBuild = 10 * time.Minute

// goTest runs the tests of one package in a process group of their own, which ends with them. A change may keep them
// from ending in time by themselves.
func goTest(ctx context.Context, patience time.Duration, path string, flags ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+toBuild)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-failfast", "-count=1", "-timeout", patience.String()}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+path)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// by is the test that noticed a change, or how the tests ended.
func by(out []byte) string {
	if m := failed.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	if bytes.Contains(out, []byte("panic: test timed out")) {
		return "(timeout)"
	}
	return "(" + strings.TrimSpace(tail(out)) + ")"
}

// tail is the last line but those of go test itself.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[max(0, len(lines)-3)]
}
