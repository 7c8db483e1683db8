package condor

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is longer than any name of a group, a program or a job, in bytes.
const maxWord = 256

// Foreign is text of a user's choice, for logs, ads and terminals: at most so many
// bytes of it, and nothing that moves a cursor or breaks a line.
func Foreign(s string, most int) string {
	end := ""
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, end = s[:most], "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s) + end
}

// Word is a name of a user's choice.
func Word(s string) string { return Foreign(s, maxWord) }

// clip keeps foreign text in messages short.
func clip(s string) string { return Foreign(s, 80) }
