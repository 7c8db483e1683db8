package config

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the file. The largest real one, a table for each GPU of a big
// farm, stays far below; the TOML library needs time and memory that grow with
// the square of a line's length and of the depth of brackets.
const (
	maxFileBytes = 1 << 20
	maxLineBytes = 1000
	maxDepth     = 8
)

// screen refuses what the TOML library reads wrongly, slowly or not at all.
func screen(text []byte) *Error {
	if len(text) > maxFileBytes {
		return &Error{Problem: fmt.Sprintf("the file is larger than %d bytes; is it a gpuslot.toml?", maxFileBytes)}
	}
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return &Error{Line: 1, Problem: "the file starts with a byte order mark; save it as UTF-8 without one"}
		}
	}
	depth := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		problem := screenLine(line)
		if problem == "" {
			depth, problem = nesting(string(line), depth)
		}
		if problem != "" {
			return &Error{Line: i + 1, Problem: problem}
		}
	}
	return nil
}

func screenLine(line []byte) string {
	if !utf8.Valid(line) {
		return "the line is not UTF-8 text; save the file as UTF-8"
	}
	if len(line) > maxLineBytes {
		return fmt.Sprintf("the line has %d bytes; a line of gpuslot.toml has at most %d", len(line), maxLineBytes)
	}
	return ""
}

// nesting follows the brackets of one line outside strings and comments. No
// value of gpuslot.toml needs a string of several lines, so none is read.
func nesting(line string, depth int) (int, string) {
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '#':
			return depth, ""
		case '"', '\'':
			if strings.HasPrefix(line[i:], strings.Repeat(string(c), 3)) {
				return depth, "write the text on one line, in single quotation marks; no value of gpuslot.toml needs more"
			}
			i += quoted(line[i:])
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDepth {
			return depth, fmt.Sprintf("more than %d brackets are open here; no value of gpuslot.toml needs that", maxDepth)
		}
	}
	return depth, ""
}

// quoted is the distance from an opening quote to its closing one, or to the
// end of the line.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return i
		case s[i] == '\\' && s[0] == '"':
			i++
		}
	}
	return len(s)
}
