package show

import (
	"fmt"
	"io"
	"strings"
)

// Progress shows how far a verb is: one line that changes on a terminal, a line for
// each text elsewhere.
type Progress struct {
	// Out is standard error.
	Out io.Writer
	// Terminal: Out is one.
	Terminal bool

	drawn bool
}

// NewProgress looks whether out is a terminal.
func NewProgress(out io.Writer) *Progress {
	f, ok := File(out)
	return &Progress{Out: out, Terminal: ok && IsTerminal(f)}
}

// Say writes a text.
func (p *Progress) Say(text string) {
	if !p.Terminal {
		fmt.Fprintln(p.Out, text)
		return
	}
	p.drawn = true
	fmt.Fprint(p.Out, "\r"+text+ClearLine)
}

// End leaves an empty line on a terminal.
func (p *Progress) End() {
	if p.drawn {
		fmt.Fprint(p.Out, "\r"+ClearLine)
	}
}

// Bar draws a part, 0 to 1, as a bar of so many characters.
func Bar(part float64, width int) string {
	full := int(part*float64(width) + 0.5)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
