// Tally runs "go test", prints what it prints, and counts the tests that ran and
// those that were skipped, with the reasons.
//
//	tally -into FILE go test FLAGS PACKAGES   runs it and writes its counts to FILE
//	tally -sum FILE…                          prints the figures, what failed and the closing line of these runs
//
// With CI=true a test of mustRun that was skipped is a failure, unless its reason
// is one of mayLack.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) > 0 && args[0] == "-sum" {
		return sum(args[1:])
	}
	if len(args) < 4 || args[0] != "-into" || args[3] != "test" {
		return 2, errors.New("usage: tally -into FILE go test …, or tally -sum FILE…")
	}
	cmd := exec.Command(args[2], append([]string{"test", "-json"}, args[4:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 1, err
	}
	c := newCounts()
	printed := newPrinter(os.Stdout, &c)
	errRead := printed.follow(out)
	if err := cmd.Wait(); err != nil {
		code = max(cmd.ProcessState.ExitCode(), 1)
	}
	if os.Getenv("CI") == "true" {
		for _, f := range c.lacking() {
			fmt.Println(f)
			c.Failed = append(c.Failed, f)
			code = max(code, 1)
		}
	}
	return code, errors.Join(errRead, write(args[1], c))
}

// sum prints what the counts of several runs come to.
func sum(files []string) (code int, err error) {
	all := newCounts()
	for _, file := range files {
		var c counts
		text, errRead := os.ReadFile(file)
		if errRead == nil {
			errRead = json.Unmarshal(text, &c)
		}
		err = errors.Join(err, errRead)
		all.Ran += c.Ran
		all.Skipped = append(all.Skipped, c.Skipped...)
		all.Figures = append(all.Figures, c.Figures...)
		all.Failed = append(all.Failed, c.Failed...)
	}
	for _, figure := range all.Figures {
		fmt.Println(figure)
	}
	for _, f := range all.Failed {
		fmt.Println(f)
	}
	fmt.Println(all)
	return 0, err
}

func write(file string, c counts) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// event is a line of "go test -json" (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// printer prints what "go test" without -json prints: of a test that passed
// nothing, of a package one line.
type printer struct {
	out    io.Writer
	counts *counts
	// tests holds the output of the tests of packages that run, in the order
	// of their first lines.
	tests map[string][]*output
}

type output struct {
	test, text string
	over       bool
}

func newPrinter(out io.Writer, c *counts) *printer {
	return &printer{out: out, counts: c, tests: map[string][]*output{}}
}

func (p *printer) follow(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(p.out, "%s", line) // go test's own words
			} else {
				p.see(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *printer) see(e event) {
	switch {
	case e.Action == "build-output" || e.Action == "output" && e.Package == "":
		fmt.Fprint(p.out, e.Output)
	case e.Action == "output":
		o := p.of(e)
		o.text += e.Output
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		p.end(e)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		o := p.of(e)
		o.over = e.Action != "fail"
		p.counts.book(e, o.text)
	}
}

func (p *printer) of(e event) *output {
	all := p.tests[e.Package]
	if i := slices.IndexFunc(all, func(o *output) bool { return o.test == e.Test }); i >= 0 {
		return all[i]
	}
	o := &output{test: e.Test}
	p.tests[e.Package] = append(all, o)
	return o
}

// end prints a package. What is left of a failed one is the output of tests that
// failed or did not come to their end.
func (p *printer) end(e event) {
	var own string
	for _, o := range p.tests[e.Package] {
		switch {
		case o.test == "":
			own = o.text
		case e.Action == "fail" && !o.over:
			fmt.Fprint(p.out, withoutMarks(o.text))
		}
	}
	delete(p.tests, e.Package)
	if e.Action == "fail" && !slices.ContainsFunc(p.counts.Failed, func(f failure) bool { return f.Package == e.Package }) {
		p.counts.fail(e, "")
	}
	if e.Action != "fail" {
		own = closing(own)
	}
	fmt.Fprint(p.out, own)
}

// withoutMarks leaves out the lines that only -v prints.
func withoutMarks(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// closing is the line of a package that passed.
func closing(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") || strings.Contains(line, "[no test files]") {
			last = line
		}
	}
	return last
}
