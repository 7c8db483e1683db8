package show

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

func TestError(t *testing.T) {
	var b bytes.Buffer
	Error(&b, fmt.Errorf("read it: %w", Hint(errors.New("one\ntwo"), "do that")))
	if want := "gpuslot: read it: one\ngpuslot: two\nhint: do that\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		Visible("a\x1b[2Jb\u009bä"): "a?[2Jb?ä",
		OneLine(" a\n\tb\x07 "):     "a b?",
		Fold("aa bb cc", 5, "  "):   "aa bb\n  cc",
		Bar(0.5, 4):                 "[##..]",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProgress: a log gets lines; a terminal gets one that is drawn over and removed.
func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{false: "a\nb\n", true: "\ra" + ClearLine + "\rb" + ClearLine + "\r" + ClearLine} {
		var b bytes.Buffer
		p := NewProgress(&b)
		p.Terminal = terminal
		p.Say("a")
		p.Say("b")
		p.End()
		if b.String() != want {
			t.Errorf("terminal %t: %q, want %q", terminal, b.String(), want)
		}
	}
}

// TestTableVisible: what a job chose as a name moves no cursor.
func TestTableVisible(t *testing.T) {
	var table Table
	var out bytes.Buffer
	table.Row("pid 7", "a\x1b]0;owned\a.scope", "next\tcell")
	table.Print(&out)
	if got := out.String(); got != "pid 7  a?]0;owned?.scope  next?cell\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	Error(&out, errors.New("a\x1bb\nc"))
	if got := out.String(); got != "gpuslot: a?b\ngpuslot: c\n" {
		t.Errorf("%q", got)
	}
}
