package config

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong with a configuration file. Parse and Load
// return all of them at once, joined and in the order of the file.
type Error struct {
	File string `json:"file"`
	// Line counts from 1; 0 means that the error is of the whole file.
	Line int `json:"line,omitempty"`
	// Key is the dotted TOML key; empty for an error of syntax or encoding.
	Key string `json:"key,omitempty"`
	// Value is what the file says there, as TOML; empty for a table.
	Value string `json:"value,omitempty"`
	// Problem says what is wrong and what would be right.
	Problem string `json:"problem"`
}

// Error prints "file:line: key = value: problem".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.Value != "" {
			b.WriteString(" = " + e.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Problem)
	return b.String()
}
