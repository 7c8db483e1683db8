package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

import (
	"errors"
	"log/slog"
	"sync"
)

func Clamp(n, most int, log *slog.Logger) (int, error) {
	if n < 0 {
		return 0, errors.New("negative")
	}
	if n > most && most != 7 {
		log.Info("too many")
		n = most
	}
	return n, nil
}

func Has(all []int, n int) bool {
	for _, m := range all {
		if m == n {
			return true
		}
	}
	return false
}

type count struct {
	mu sync.Mutex
	n  int
}

func (c *count) add(more int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += more
	return c.n
}

func (c *count) reset() {
	c.mu.Lock()
	c.n = 0
	c.mu.Unlock()
}
`

// TestSites: every kind of change of a source is found once, and what tests cannot see is not.
func TestSites(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := sitesOf(dir, "p.go")
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, s := range found {
		changes = append(changes, s.function+": "+s.change)
		if text := string(s.apply([]byte(sample))); text == sample || s.source == "" {
			t.Errorf("%s changes nothing", s.key())
		}
	}
	want := []string{
		"Clamp: condition negated", "Clamp: < to <=", "Clamp: 0 to 1", "Clamp: error dropped",
		"Clamp: condition negated", "Clamp: > to >=", "Clamp: && to ||", "Clamp: != to ==", "Clamp: 7 to 8",
		"Clamp: assignment removed",
		"Has: condition negated", "Has: == to !=", "Has: true to false", "Has: false to true",
		"add: lock removed", "add: assignment removed",
		"reset: lock removed", "reset: assignment removed", "reset: 0 to 1",
	}
	if !slices.Equal(changes, want) {
		t.Errorf("found %q\nwant %q", changes, want)
	}
}

// TestRun tries all changes of a package of its own: what its tests do not check survives,
// and a second run tries none again.
func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":      "module p\n\ngo 1.26\n",
		"p.go":        sample,
		"p_test.go":   sampleTest,
		"equivalent":  "# why\np.go | Clamp | if n > most && most != 7 { | > to >= | they are equal\n",
		"equivalent2": "p.go | Clamp | > to >=\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("test/mutants", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("equivalent", "test/mutants/equivalent.txt"); err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalents("equivalent2"); err == nil {
		t.Error("a line without a reason is read")
	}
	o := options{n: 300, jobs: 1, seed: 1, into: "results.jsonl", packages: []string{"."}}
	var first, second strings.Builder
	err := run(t.Context(), &first, o)
	if err == nil || !strings.Contains(err.Error(), "too few changes were caught") {
		t.Errorf("%v\n%s", err, first.String())
	}
	for _, want := range []string{"caught p.go:10: condition negated TestClamp", "SURVIVED p.go:15: assignment removed",
		"SURVIVED p.go:13: 7 to 8", "SURVIVED p.go:26: false to true",
		"caught p.go:35: lock removed TestAdd", "SURVIVED p.go:42: lock removed"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("no %q in\n%s", want, first.String())
		}
	}
	if strings.Contains(first.String(), "> to >=") {
		t.Errorf("an equivalent was tried:\n%s", first.String())
	}
	before, _ := os.Stat("results.jsonl")
	_ = run(t.Context(), &second, o)
	if after, _ := os.Stat("results.jsonl"); after.Size() != before.Size() || second.String() != first.String() {
		t.Errorf("the second run found\n%s\nthe first\n%s", second.String(), first.String())
	}
}

const sampleTest = `package p

import (
	"sync"
	"testing"
)

func TestAdd(t *testing.T) {
	var c count
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { c.add(1) })
	}
	wg.Wait()
	if n := c.add(1); n != 3 {
		t.Error(n)
	}
	c.reset()
}

func TestClamp(t *testing.T) {
	if _, err := Clamp(-1, 2, nil); err == nil {
		t.Error("negative")
	}
	for n, want := range map[int]int{0: 0, 1: 1} {
		if got, err := Clamp(n, 2, nil); err != nil || got != want {
			t.Error(got, err)
		}
	}
	if !Has([]int{1, 2}, 2) || Has(nil, 1) && false {
		t.Error("2")
	}
}
`

// TestEquivalents: each line of the list names a change of the program as it is.
func TestEquivalents(t *testing.T) {
	keys, err := readEquivalents("equivalent.txt")
	if err != nil || len(keys) == 0 {
		t.Fatal(len(keys), err)
	}
	sites := map[string][]site{}
	for _, key := range keys {
		file, _, _ := strings.Cut(key, " | ")
		if _, known := sites[file]; !known {
			// One without the file has none of its changes.
			sites[file], _ = sitesOf("../..", file)
		}
		if !slices.ContainsFunc(sites[file], func(s site) bool { return s.key() == key }) {
			t.Errorf("the program has no such change any more: %s", key)
		}
	}
}
