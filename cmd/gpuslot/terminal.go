package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// The escape sequences that every terminal of the last decades knows.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearRest   = "\x1b[J"
	bold        = "\x1b[1m"
	plain       = "\x1b[m"
)

// terminal is a screen that is painted again and again.
type terminal struct {
	out  *os.File
	in   *os.File
	was  *unix.Termios
	keys chan byte
}

// terminalOf takes over the screen and the keyboard, if both are there.
func terminalOf(in io.Reader, out io.Writer) (*terminal, bool) {
	screen, ok := show.File(out)
	if !ok || !show.IsTerminal(screen) {
		return nil, false
	}
	t := &terminal{out: screen, keys: make(chan byte, 8)}
	if keyboard, ok := in.(*os.File); ok && show.IsTerminal(keyboard) {
		t.in = keyboard
		t.listen()
	}
	fmt.Fprint(t.out, enterScreen)
	return t, true
}

// listen makes keys come at once and unseen; Ctrl-C stays a signal.
func (t *terminal) listen() {
	fd := int(t.in.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return
	}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &raw) != nil {
		return
	}
	t.was = was
	go func() { // it ends with the program: a read of a terminal cannot be called off
		b := make([]byte, 1)
		for {
			if n, err := t.in.Read(b); n == 0 || err != nil {
				return
			}
			t.keys <- b[0]
		}
	}()
}

// leave gives everything back as it was.
func (t *terminal) leave() {
	fmt.Fprint(t.out, leaveScreen)
	if t.was != nil {
		_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, t.was)
	}
}

// size of the screen; 80 times 24 if it does not tell.
func (t *terminal) size() (columns, lines int) {
	w, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// paint shows a text in one write, line over line: nothing flickers.
func (t *terminal) paint(text string) error {
	columns, lines := t.size()
	_, err := io.WriteString(t.out, painted(text, columns, lines))
	return err
}

// painted is what to write: no line is longer than the screen is wide, and the
// last one says what did not fit.
func painted(text string, columns, lines int) string {
	var b strings.Builder
	b.WriteString(home)
	rows := strings.Split(strings.TrimRight(text, "\n"), "\n")
	hidden := 0
	if len(rows) > lines {
		hidden = len(rows) - lines + 1
		rows = append(rows[:lines-1:lines-1], fmt.Sprintf("… and %d more lines", hidden))
	}
	for i, row := range rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		row = cut(strings.TrimRight(row, " "), columns)
		if head, ok := strings.CutPrefix(row, headMark); ok {
			row = bold + head + plain
		}
		b.WriteString(row + show.ClearLine)
	}
	b.WriteString(clearRest)
	return b.String()
}

// headMark begins the titles of tables, where there is a terminal to show them.
const headMark = "\x00"

// cut shortens a line; control characters, which a job's name may have, go.
func cut(row string, columns int) string {
	mark := ""
	if strings.HasPrefix(row, headMark) {
		mark, row = headMark, row[len(headMark):]
	}
	row = show.Visible(row)
	if utf8.RuneCountInString(row) <= columns {
		return mark + row
	}
	return mark + string([]rune(row)[:max(columns-1, 0)]) + "…"
}
