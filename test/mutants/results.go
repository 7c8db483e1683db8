package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
)

// What becomes of a change.
const (
	caught   = "caught"
	survived = "SURVIVED"
	notBuilt = "not built"
)

// result is what the tests made of one change.
type result struct {
	// Key is the site's, State the digest of the package's files.
	Key    string `json:"key"`
	State  string `json:"state"`
	Result string `json:"result"`
	// By is the test that failed first.
	By      string  `json:"by,omitempty"`
	Seconds float64 `json:"seconds"`
}

// results are kept on disk.
type results struct {
	mu   sync.Mutex
	file *os.File
	had  map[string]result
}

// openResults reads what was kept. A last line that was cut off is left out.
func openResults(path string) (*results, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	k := &results{file: f, had: map[string]result{}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			k.had[r.Key+r.State] = r
		}
	}
	return k, nil
}

func (k *results) find(s site, state string) (result, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.had[s.key()+state]
	return r, ok
}

func (k *results) add(r result) error {
	var line bytes.Buffer
	to := json.NewEncoder(&line)
	to.SetEscapeHTML(false) // operators are to be read
	if err := to.Encode(r); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.file.Write(line.Bytes())
	return err
}

func (k *results) Close() error { return k.file.Close() }

// readEquivalents reads the keys of changes that no test can notice. A line of the file is a
// key, " | " and the reason; one that begins with # is a comment.
func readEquivalents(path string) (keys []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " | ")
		if strings.Count(line, " | ") < 4 || i+3 == len(line) {
			return nil, fmt.Errorf("%s: a line needs file | function | source | change | reason: %s", path, line)
		}
		keys = append(keys, line[:i])
	}
	return keys, nil
}

// The least shares of changes that tests catch, of all and of each package, in percent.
const (
	aimOfAll  = 85
	aimOfEach = 75
)

// report prints the table, and what survived. A missed aim is an error.
func report(out io.Writer, queues []*queue, cut bool) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tPLACES\tTRIED\tCAUGHT\tSHARE\t")
	tried, held, missed := 0, 0, []string{}
	row := func(name string, places, n, good, aim int) {
		if n == 0 {
			return
		}
		verdict := ""
		if 100*good < aim*n {
			verdict = fmt.Sprintf("below %d %%", aim)
			missed = append(missed, name)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d %%\t%s\n", name, places, n, good, 100*good/n, verdict)
	}
	places := 0
	for _, q := range queues {
		good := 0
		for _, r := range q.results {
			if r.Result == caught {
				good++
			}
		}
		row(q.pkg.path, len(q.pkg.sites), len(q.results), good, aimOfEach)
		tried, held, places = tried+len(q.results), held+good, places+len(q.pkg.sites)
	}
	row("all", places, tried, held, aimOfAll)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, q := range queues {
		for _, r := range q.results {
			if r.Result == survived {
				fmt.Fprintln(out, "survived:", r.Key)
			}
		}
	}
	switch {
	case cut:
		return fmt.Errorf("cut off after %d changes; the same command goes on from there", tried)
	case len(missed) > 0:
		return fmt.Errorf("too few changes were caught: %s", strings.Join(missed, ", "))
	}
	return nil
}
