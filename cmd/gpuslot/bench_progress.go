package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
)

// progressBar tells how far a benchmark is: one line that changes on a
// terminal, a line for each run elsewhere.
type progressBar struct {
	out      io.Writer
	terminal bool
}

func newProgressBar(w io.Writer) progressBar {
	f, ok := asFile(w)
	return progressBar{w, ok && isTerminal(f)}
}

func (p progressBar) show(at bench.Progress) { p.say(progressText(at, p.terminal)) }

// progressText is the bar and what runs now. The time left supposes that the
// runs to come take as long as those before.
func progressText(at bench.Progress, bar bool) string {
	s := at.Step
	text := fmt.Sprintf("%d/%d %s, %d copies, repeat %d", at.Done+1, at.All, s.Mode, s.Copies, s.Repeat)
	if bar {
		const width = 24
		full := width * at.Done / at.All
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] " + text
	}
	if at.Done > 0 {
		left := at.Elapsed / time.Duration(at.Done) * time.Duration(at.All-at.Done)
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	return text
}

func (p progressBar) say(text string) {
	if p.terminal {
		fmt.Fprint(p.out, "\r"+text+clearLine)
		return
	}
	fmt.Fprintln(p.out, text)
}

// end leaves an empty line to the result.
func (p progressBar) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r"+clearLine)
	}
}
