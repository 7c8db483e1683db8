package show

import (
	"strings"
)

// Visible replaces control characters: text of a job could give orders to a terminal.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// OneLine puts a program's text into one line that a terminal can show.
func OneLine(s string) string { return Visible(strings.Join(strings.Fields(s), " ")) }

// Fold breaks a text into lines of a width in characters, the further ones behind an
// indent.
func Fold(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
