// Package foreign makes text of a user's choice fit for logs, ads and terminals:
// names of programs, groups and processes, and pieces of files that cannot be read.
package foreign

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds in bytes. A word is longer than any name of a group, a program or a job.
const (
	mostClip = 80
	mostWord = 256
)

// Clip is text inside a message: at most 80 bytes.
func Clip(s string) string { return Text(s, mostClip) }

// Word is a name: at most 256 bytes.
func Word(s string) string { return Text(s, mostWord) }

// Text is at most so many bytes of s, cut between characters and ended with "…" if
// any are missing. What moves a cursor or breaks a line becomes "?".
func Text(s string, most int) string {
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
